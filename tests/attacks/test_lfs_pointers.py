"""F1, a file whose content is not in the commit (Git LFS and its like): a gang never trains on what stands for it."""

import pytest
from tests.line import repositories

from gangline.build import code_layer
from gangline.data.resolve import ReadableFile, resolve_text
from gangline.errors import ConfigError
from gangline.git.objects import substitute
from gangline.git.repository import Repository
from gangline.spec.config.data_keys import DataAccess
from gangline.spec.config.line import ProjectTable

POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'4d' * 32}\nsize 3200000\n"
FORMS = {
    "as git lfs writes it": POINTER,
    "of an extension": POINTER.replace("oid", f"ext-0-case sha256:{'5e' * 32}\noid"),
    "of the time before its name": POINTER.replace("git-lfs", "hawser"),
    "with the line ends of Windows": POINTER.replace("\n", "\r\n"),
    "without its last line end": POINTER.rstrip("\n"),
}
FILES = {
    "a text about it": f"A pointer looks like this:\n\n{POINTER}",
    "a text that begins like it": POINTER + "and that is all.\n",
    "its first line": "version https://git-lfs.github.com/spec/v1\n",
    "a long one": POINTER + "\n" * 2000,
    "nothing": "",
    "a path like that of git-annex": "see /annex/objects/SHA256E-s5--4d.bin",
}


@pytest.fixture
def repo(tmp_path):
    return repositories.make_repository(tmp_path / "repo", {"line.toml": repositories.LINE, "model.py": "a"})


def pack(repo, **fields):
    found = Repository.at(repo)
    return code_layer.pack(found, found.tree("HEAD"), ProjectTable(name="a", command=("python",), **fields))


@pytest.mark.row("F1")
@pytest.mark.parametrize("pointer", FORMS.values(), ids=FORMS.keys())
def test_a_pointer_enters_no_code_layer_and_no_data(repo, pointer):
    repositories.commit(repo, {"weights.bin": pointer})
    with pytest.raises(
        ConfigError, match=r"weights\.bin: .* Git LFS pointer to 3\.2 MB: .*exclude = \[\"weights\.bin\"\]"
    ):
        pack(repo)
    assert pack(repo, exclude=("weights.bin",)).files == 1
    source = ReadableFile(len(pointer), pointer.encode)
    with pytest.raises(ConfigError, match=r"data\.text: .*weights\.bin, found a Git LFS pointer to 3\.2 MB"):
        resolve_text(["repo:*.bin"], tracked={"weights.bin": source}, access=DataAccess())


@pytest.mark.row("F1")
def test_all_of_several_pointers_are_named_at_once(repo):
    pointer = next(iter(FORMS.values()))
    repositories.commit(repo, {"docs/a.png": pointer, "docs/b.png": pointer, "docs/words.md": "words"})
    with pytest.raises(ConfigError, match=r'docs/a.png: .*, as in 1 more: .*exclude = \["docs/a.png", "docs/b.png"\]'):
        pack(repo)
    assert pack(repo, exclude=("docs/a.png", "docs/b.png")).files == 2


@pytest.mark.row("F1")
@pytest.mark.parametrize(("data", "what"), [
    ("/annex/objects/SHA256E-s3200000--4d.bin\n", "a pointer of git-annex"),
    ("\0GITCRYPT\0\x17\x03", "a file that git-crypt encrypted"),
])  # fmt: skip
def test_so_does_nothing_of_git_annex_and_git_crypt(repo, data, what):
    repositories.commit(repo, {"weights.bin": data})
    with pytest.raises(ConfigError, match=rf"weights\.bin: .* {what}: its content is not in the commit"):
        pack(repo)
    with pytest.raises(ConfigError, match=rf"data\.text: .*weights\.bin, found {what}"):
        resolve_text(["repo:*.bin"], tracked={"weights.bin": ReadableFile(9, data.encode)}, access=DataAccess())


@pytest.mark.row("F1")
@pytest.mark.parametrize("text", FILES.values(), ids=FILES.keys())
def test_files_that_only_mention_one_pass(repo, text):
    repositories.commit(repo, {"notes.txt": text})
    assert pack(repo).files == 2
    assert substitute(text.encode()) is None
