"""Texts of spaCy 2.0.18's own tests of its English tokenizer, with the expected tokens.

They show that the Python pipeline, the reference of all other tests, splits text as spaCy did.
"""

import pytest

from benchmarks.peers.python_pipeline import SpacyTokenizer

# spacy/tests/lang/en and spacy/tests/tokenizer. Spaces separate tokens; `|` is a line end.
TOKENS = {
    "don't giggle": "do n't giggle",
    "i said don't!": "i said do n't !",
    "`ain't": "` ai n't",
    "\"isn't": "\" is n't",
    "can't!": "ca n't !",
    "Robin's": "Robin 's",
    "Alexis's": "Alexis 's",
    "schools'": "schools '",
    "'em": "'em",
    "nothin'": "nothin'",
    "there'll": "there 'll",
    "Ain't": "Ai n't",
    "They'd": "They 'd",
    "Ill": "Ill",
    "well": "well",
    "``We've": "`` We 've",
    "couldn't)": "could n't )",
    "e.g.": "e.g.",
    "Jan.": "Jan.",
    "Inc.": "Inc.",
    "It's mediocre i.e. bad.": "It 's mediocre i.e. bad .",
    "1am": "1 am",
    "12a.m.": "12 a.m.",
    "(can)": "( can )",
    "(can't?)": "( ca n't ? )",
    "us.": "us .",
    "(U.S.": "( U.S.",
    "(U.S.?)": "( U.S. ? )",
    "best-known": "best - known",
    "0.1-13.5": "0.1 - 13.5",
    "103.27-300": "103.27 - 300",
    "Hello.World": "Hello . World",
    "one,two": "one , two",
    "best...Known": "best ... Known",
    "No decent--let alone well-bred--people.": "No decent -- let alone well - bred -- people .",
    "((": "( (",
    "<": "<",
    "[Hello": "[ Hello",
    "Hello*": "Hello *",
    "{`Hello": "{ ` Hello",
    "Hello)'": "Hello ) '",
    "[[[Hello": "[ [ [ Hello",
    "Hello}}}": "Hello } } }",
    "'The": "' The",
    "Hello''": "Hello ''",
    "`(Hello)'": "` ( Hello ) '",
    "(And a 6a.m. run through Washington Park).": "( And a 6 a.m. run through Washington Park ) .",
    "The U.S. Army likes Shock and Awe.": "The U.S. Army likes Shock and Awe .",
    "U.N. regulations are not a part": "U.N. regulations are not a part",
    "“Isn't it?”": "“ Is n't it ? ”",
    "I'd rather have a walk\", Ms. Comble": "I 'd rather have a walk \" , Ms. Comble",
    "'Me too!', Mr. P. Delaware cried.": "' Me too ! ' , Mr. P. Delaware cried .",
    "They ran about 10km.": "They ran about 10 km .",
    "10,000": "10,000",
    "Tom (D., Ill.)!": "Tom ( D. , Ill. ) !",
    "NASDAQ:GOOG": "NASDAQ : GOOG",
    "hello123@example.com": "hello123@example.com",
    "(www.red-stars.com)": "( www.red-stars.com )",
    "mailto:foo.bar@baz.com:": "mailto:foo.bar@baz.com :",
    '"http://foo.com/blah_(wikipedia)#cite-1>': '" http://foo.com/blah_(wikipedia)#cite-1 >',
    "http://142.42.1.1:8080/": "http://142.42.1.1:8080/",
    "lorem \n ipsum": "lorem | ipsum",
    ":'(": ":'(",
    "o.O": "o.O",
    "example:)": "example : )",
    "can you still dunk?🍕🍔😵LOL": "can you still dunk? 🍕 🍔 😵 LOL",
    "i💙you": "i 💙 you",
}


@pytest.fixture(scope="module")
def spacy():
    return SpacyTokenizer()


@pytest.mark.parametrize("text", TOKENS)
def test_tokens(spacy, text):
    assert " ".join(spacy(text)).replace("\n ", "|") == TOKENS[text]


@pytest.mark.parametrize("url", ["http://10.1.1.1", "http://224.1.1.1", "http://a.b-.co", "///a"])
def test_what_is_no_url(spacy, url):
    assert not spacy._is_url(url)


def test_the_graph(split, pipeline):
    assert split(list(TOKENS)) == [pipeline(text) for text in TOKENS]
