"""Byte-pair encoding one merge at a time, as in textbooks, and vocabularies for it."""

from gpt1_keras.tokenization.vocabulary import END_OF_WORD, Vocabulary


def make_vocabulary(merges, letters="abcde"):
    tokens = ["<unk>", *letters, *(letter + END_OF_WORD for letter in letters)]
    tokens += [merge.replace(" ", "") for merge in merges]
    return Vocabulary({token: id for id, token in enumerate(dict.fromkeys(tokens))}, merges)


def base_symbols(word):
    return [*word[:-1], word[-1] + END_OF_WORD]


def merge_one_by_one(symbols, merges):
    """Merges as textbooks do: joins the leftmost pair of the lowest rank until none is left."""
    ranks = {}
    for rank, merge in enumerate(merges):
        ranks.setdefault(merge, rank)
    symbols = list(symbols)
    while True:
        found = [
            (ranks[pair], index)
            for index, pair in enumerate(zip(symbols, symbols[1:]))
            if pair in ranks
        ]
        if not found:
            return symbols
        index = min(found)[1]
        symbols[index : index + 2] = ["".join(symbols[index : index + 2])]


def random_merges(rng, letters):
    """Makes random merges, each of characters or of products of earlier merges."""
    inner, final = list(letters), [letter + END_OF_WORD for letter in letters]
    merges = []
    for _ in range(rng.randint(2, 20)):
        left, right = rng.choice(inner), rng.choice(inner + final)
        merge, product = f"{left} {right}", left + right
        if merge in merges or len(product.removesuffix(END_OF_WORD)) > 8:
            continue
        merges.append(merge)
        if product not in inner + final:
            (final if product.endswith(END_OF_WORD) else inner).append(product)
    return merges


def random_vocabulary(rng, letters, ordered):
    """Makes a random vocabulary; its merges are in order, or not."""
    while True:
        merges = random_merges(rng, letters)
        if not ordered and rng.random() < 0.3:
            rng.shuffle(merges)
        vocabulary = make_vocabulary(merges)
        if vocabulary.merges_are_ordered is ordered:
            return vocabulary
