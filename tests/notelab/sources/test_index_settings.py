"""Which index, and with what: as pip would have it, and nothing secret is ever shown."""

import os
import sys
from pathlib import Path

import pytest

from notelab.sources.answers import FoundFile, Source, SourceError
from notelab.sources.index import address
from notelab.sources.index.address import Address, Settings, find
from notelab.sources.index.session import Session, describe_error
from notelab.sources.index.wheel import open_wheel
from notelab.sources.library import Library
from notelab.sources.store import Store, blob_id
from tests.notelab.sources.package_index import (
    NAME,
    VERSION,
    WHEEL,
    make_wheel,
    nobody_there,
    serving,
)  # fmt: skip
from tests.notelab.sources.upstream import reasons

pytestmark = pytest.mark.usefixtures("pip_of_its_own")
PATH, DATA = "trial/one.py", b"def one():\n    return 1\n"
REQUIREMENT = f"{NAME}=={VERSION}"
SOURCE = Source("up", "ext::refused", "1" * 40, wheel=REQUIREMENT)


def _answer(tmp_path: Path) -> object:
    return Library(Store(tmp_path / "cache"), {}).read(SOURCE, {PATH: blob_id(DATA)})[PATH]


def test_pips_environment_goes_above_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config_file = tmp_path / "pip.conf"
    config_file.write_text(
        "[global]\nindex-url = https://one.invalid/simple\ncert = /global.pem\n"
        "trusted-host = a.invalid\n  b.invalid:8443\n"
        "extra-index-url =\n  https://two.invalid/simple\n  file:///three\n"
        "[install]\ncert = /install.pem\nfind-links = /wheels https://links.invalid/\n"
        "[download]\nproxy = http://none.invalid\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config_file))
    monkeypatch.setenv("PIP_FIND_LINKS", "/mine")
    monkeypatch.setenv("PIP_CLIENT_CERT", "/me.pem")
    assert address.read() == Settings(
        public=False,
        indexes=("https://one.invalid/simple", "https://two.invalid/simple", "file:///three"),
        find_links=("/mine",),
        trusted_hosts=("a.invalid", "b.invalid:8443"),
        certificates="/install.pem",
        client_certificate="/me.pem",
    )


def test_no_index_leaves_folders_of_links_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "true")
    monkeypatch.setenv("PIP_INDEX_URL", "https://one.invalid/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "/wheels")
    assert address.read() == Settings(public=False, find_links=("/wheels",))


def test_an_extra_index_is_asked_beside_the_public_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PIP_EXTRA_INDEX_URL", "https://one.invalid/simple")
    assert address.read() == Settings(indexes=("https://one.invalid/simple",))


def test_without_pip_its_environment_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "no-python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    reports: list[str] = []
    with serving(make_wheel(tmp_path, {PATH: DATA}, filler=10)) as index:
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        library = Library(Store(tmp_path / "cache"), {}, progress=reports.append)
        assert isinstance(library.read(SOURCE, {PATH: blob_id(DATA)})[PATH], FoundFile)
    assert reports == [
        "pip is not installed, so its configuration files are not read: "
        "only the PIP_* variables are used"
    ]


@pytest.mark.parametrize("json", [False, True])
def test_either_index_gives_the_hash(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, json: bool
) -> None:
    with serving(make_wheel(tmp_path, {PATH: DATA}, filler=10), json=json) as index:
        address = find(REQUIREMENT, Settings(public=False, indexes=(index.url,)), "", "")
        monkeypatch.setenv("PIP_INDEX_URL", index.url)
        assert isinstance(_answer(tmp_path), FoundFile)
    assert (address.file, len(address.sha256)) == (WHEEL, 64)


def test_an_index_on_disk_is_read_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    project = tmp_path / "an index/simple" / NAME
    project.mkdir(parents=True)
    make_wheel(tmp_path / "files", {PATH: DATA}, filler=10)
    (project / "index.html").write_text(f"<a href='../../../files/{WHEEL}'>{WHEEL}</a>")
    monkeypatch.setenv("PIP_INDEX_URL", (tmp_path / "an index/simple").as_uri())
    assert isinstance(_answer(tmp_path), FoundFile)


def test_a_page_of_the_network_leads_to_no_file_of_this_machine(tmp_path: Path) -> None:
    here = make_wheel(tmp_path, {PATH: DATA}, filler=10)
    page = f"<a href='{here.as_uri()}'>{WHEEL}</a>".encode()
    with serving(page=page) as index, pytest.raises(SourceError, match="no index has a wheel"):
        find(REQUIREMENT, Settings(public=False, indexes=(index.url,)), "", "")


def test_an_index_that_fails_does_not_hide_one_that_answers(tmp_path: Path) -> None:
    wheel = make_wheel(tmp_path, {PATH: DATA}, filler=10)
    with nobody_there() as gone, serving(status=503) as broken, serving(wheel) as good:
        several = Settings(
            public=False,
            indexes=(gone, broken.url, good.url),
            find_links=(str(tmp_path / "nowhere"), "no such thing"),
        )
        assert find(REQUIREMENT, several, "", "").file == WHEEL


def test_of_several_wheels_the_one_asked_for_is_found_else_the_most_common(tmp_path: Path) -> None:
    names = [
        "shardbook_trial-1.0+cpu-py3-none-any.whl",
        "shardbook_trial-1.0-cp311-cp311-macosx_14_0_arm64.whl",
        "shardbook_trial-1.0-cp311-cp311-manylinux_2_28_x86_64.whl",
        "shardbook_trial-1.0-cp312-cp312-manylinux_2_28_x86_64.whl",
        "shardbook_trial-1.0.1-py3-none-any.whl",
    ]
    wheels = [make_wheel(tmp_path, {PATH: DATA}, filler=10, name=name) for name in names]
    with serving(*wheels) as index:
        here = Settings(public=False, indexes=(index.url,))
        assert find(REQUIREMENT, here, "", "").file == names[2]
        assert find(REQUIREMENT, here, names[1], "").file == names[1]
    for name in names[1:4]:
        (tmp_path / name).unlink()
    folder = Settings(public=False, find_links=(str(tmp_path),))
    assert find(REQUIREMENT, folder, names[1], "").file == names[0]


@pytest.mark.parametrize("where", ["address", "netrc"])
def test_credentials_open_an_index(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    login = "reader:s3cret"
    with serving(make_wheel(tmp_path, {PATH: DATA}, filler=10), login=login) as index:
        if where == "netrc":
            netrc = tmp_path / "netrc"
            netrc.write_text("machine 127.0.0.1 login reader password s3cret\n")
            netrc.chmod(0o600)
            monkeypatch.setenv("NETRC", str(netrc))
            monkeypatch.setenv("PIP_INDEX_URL", index.url)
        else:
            monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", f"//{login}@"))
        assert isinstance(_answer(tmp_path), FoundFile)
    cached = b"".join(
        path.read_bytes() for path in (tmp_path / "cache").rglob("*") if path.is_file()
    )
    assert cached
    assert b"s3cret" not in cached


def test_credentials_go_to_their_own_host_alone(tmp_path: Path) -> None:
    with serving(make_wheel(tmp_path, {PATH: DATA}, filler=10), login="reader:s3cret") as index:
        stranger = Settings(indexes=("https://reader:s3cret@elsewhere.invalid/simple",))
        file = index.url.replace("/simple", f"/files/{WHEEL}")
        with pytest.raises(SourceError, match="401") as refused:
            open_wheel(Address(file, WHEEL), stranger, "wheel")
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("login", ["reader:wrong", "", "s3cret%40:w/rong"])
def test_an_index_that_lets_nobody_in_is_a_reason_without_the_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, login: str
) -> None:
    with serving(make_wheel(tmp_path, {PATH: DATA}, filler=10), login="reader:s3cret") as index:
        at = f"//{login.replace('/', '%2F')}@" if login else "//"
        monkeypatch.setenv("PIP_INDEX_URL", index.url.replace("//", at))
        reason = reasons(_answer(tmp_path))[-1]
    assert "127.0.0.1" in reason and "answers 401" in reason
    assert not [word for word in ("rong", "s3cret", "reader") if word in reason]


@pytest.mark.parametrize(
    "text",
    [
        "Max retries exceeded with url: /simple/x?token=s3cret (Caused by X)",
        "404 Client Error: Not Found for url: https://u:s3cret@h.invalid/f.whl?sig=s3cret",
        "see https://h.invalid/path/s3cret, or http://u:p@s3cret@h.invalid",
    ],
)
def test_a_fault_is_said_without_the_address_it_holds(text: str) -> None:
    assert "s3cret" not in describe_error(ValueError(text))


def test_a_session_has_what_pip_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "http://environment.invalid")
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", os.devnull)
    plain = Session(Settings(certificates="/mine.pem", client_certificate="/me.pem"))
    assert (plain.verify, plain.cert) == ("/mine.pem", "/me.pem")
    proxied = Session(Settings(proxy="http://mine.invalid", trusted_hosts=("a.invalid",)))
    merged = proxied.merge_environment_settings("https://a.invalid/x", {}, None, None, None)
    assert merged["proxies"]["https"] == "http://mine.invalid"
    trusting, stranger = (proxied.get_adapter(f"https://{host}.invalid/x") for host in "ab")
    assert type(trusting) is not type(stranger)
    assert type(proxied.get_adapter("https://a.invalid:8443/x")) is type(trusting)
    assert type(proxied.get_adapter("https://a.invalid.b/x")) is type(stranger)
