"""The notices of a vendored script name each bundled package and version, with its licence."""

import io
import json
import tarfile
from pathlib import Path

import pytest

from sitelab import vendor

PNPM = "../../node_modules/.pnpm/"


def archive(folder: Path, name: str, facts: dict[str, str], **files: str) -> Path:
    path = folder / f"{name}.tgz"
    members = {
        "package.json": json.dumps(facts),
        **{k.replace("_", "."): v for k, v in files.items()},
    }
    with tarfile.open(path, "w:gz") as tar:
        for member, text in members.items():
            info = tarfile.TarInfo(f"package/{member}")
            info.size = len(text.encode())
            tar.addfile(info, io.BytesIO(text.encode()))
    return path


def test_a_source_map_names_every_package_and_each_of_its_versions() -> None:
    inner = f"// {PNPM}langium@4.2.1/node_modules/langium/lib/index.js\nvar a;"
    source_map = {
        "sources": [
            f"{PNPM}@iconify+utils@3.0.2/node_modules/@iconify/utils/lib/name.js",
            f"{PNPM}d3-path@3.1.0/node_modules/d3-path/src/path.js",
            f"{PNPM}d3-path@1.0.9/node_modules/d3-path/src/path.js",
            f"{PNPM}cose@2.2.0_cytoscape@3.34.0/node_modules/cose/cose.js",
            "../src/mermaid.ts",
        ],
        "sourcesContent": [None, "", "", "", inner],
    }
    assert vendor.list_packages(json.dumps(source_map).encode()) == [
        "@iconify/utils@3.0.2", "cose@2.2.0", "d3-path@1.0.9", "d3-path@3.1.0", "langium@4.2.1",
    ]  # fmt: skip


def test_a_source_map_that_names_no_package_is_refused() -> None:
    with pytest.raises(ValueError, match="names no package"):
        vendor.list_packages(b'{"sources": ["../src/mermaid.ts"]}')


def test_texts_that_are_alike_stand_once_under_all_whose_they_are(tmp_path: Path) -> None:
    archives = {
        "a@1": archive(tmp_path, "a", {"license": "MIT"}, LICENSE="Copyright A \n\nGranted.\n"),
        "b@1": archive(tmp_path, "b", {"license": "MIT"}, license_txt="Copyright A\n\nGranted."),
        "c@1": archive(tmp_path, "c", {"license": "ISC"}),
    }
    text = vendor.format_notices("Title", archives, archives.__getitem__)
    assert text.startswith("Title\n") and "c@1 (ISC)\n" in text
    assert text.count("Copyright A") == 1
    assert f"{vendor.RULE}\na@1, b@1\n{vendor.RULE}\n\nCopyright A\n" in text


def test_a_readme_speaks_where_there_is_no_licence_file_and_silence_is_refused(
    tmp_path: Path,
) -> None:
    readme = "# d\n\nhow to\n\n## License\n\n(MIT) Copyright D\n\n## More\n"
    notice = vendor.read_notice("d@1", archive(tmp_path, "d", {"license": "MIT"}, README_md=readme))
    assert notice.text == "(MIT) Copyright D"
    with pytest.raises(ValueError, match="says nowhere"):
        vendor.read_notice("e@1", archive(tmp_path, "e", {}, README_md="# e\n"))
