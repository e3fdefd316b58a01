"""Which text files are documents, and their splits and groups."""

import os
import pathlib

import numpy as np
import pytest

from training.corpus.text_files import find_groups


def test_groups_are_consecutive_and_about_equal(tmp_path, write_texts):
    sizes = np.random.default_rng(0).integers(0, 1000, 300)
    write_texts(tmp_path, {f"{i:03}.txt": "x" * size for i, size in enumerate(sizes)})
    groups = find_groups(tmp_path, 5000)["train"]
    assert len(groups) == -(-sizes.sum() // 5000)
    names = [os.path.basename(path) for group in groups for path in group.paths]
    assert names == [f"{i:03}.txt" for i in range(300)]
    of_group = [sum(map(os.path.getsize, group.paths)) for group in groups]
    assert max(of_group) - min(of_group) <= 2 * sizes.max()


def test_a_validation_share_goes_by_name_alone(tmp_path, write_texts):
    texts = {f"{i}.txt": f"a film {i}" for i in range(200)}

    def divide(folder, names):
        write_texts(tmp_path / folder, {name: texts[name] for name in names})
        groups = find_groups(tmp_path / folder, 10**6, validation_share=0.2)
        return {
            split: {os.path.basename(path) for group in groups[split] for path in group.paths}
            for split in groups
        }

    every = divide("all", texts)
    assert 20 < len(every["validation"]) < 60
    assert every["train"] | every["validation"] == set(texts)
    some = divide("some", list(texts)[::2])
    assert some["validation"] == every["validation"] & set(list(texts)[::2])


@pytest.mark.parametrize(
    ("added", "message"),
    [
        ({"more.txt": "outside"}, "more.txt lies outside the splits of .* ['train', 'valid']"),
        ({"validation/a.txt": "twice"}, "must have one of valid/ and validation/; it has both"),
        ({"test/a.md": "no text"}, "test holds no .txt file"),
    ],
)
def test_odd_splits_are_refused(added, message, stories, write_texts):
    write_texts(pathlib.Path(stories), added)
    with pytest.raises(ValueError, match=message.replace("[", r"\[").replace("]", r"\]")):
        find_groups(stories, 10**6)
