"""Renewing certificates and expelling participants, in the coordinator's directory."""

import json
import shutil
from pathlib import Path

import pytest

pytest.importorskip("nvflare", reason="needs the extra 'flare': pip install 'pfedes[flare]'")

from cryptography import x509

from pfedes import StoreError, cli, configure
from pfedes.config.participant import read_participant
from pfedes.deploy.certificates import endings, read_certificate
from pfedes.deploy.coordinator.layout import Layout
from pfedes.deploy.coordinator.members import renew, renew_authority, renew_server, revoke
from pfedes.deploy.coordinator.serve import admit, prepare
from pfedes.deploy.kit import CERTIFICATE, KEY, read_kit
from pfedes.deploy.participant.join import Joining
from pfedes.deploy.participant.keys import read_authority, reissue, write_request
from pfedes.deploy.rehearsal import federation_of, write_participant
from pfedes.deploy.revocation import read_revocations


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation of ada, ben and cleo, who made her key herself."""
    home = tmp_path_factory.mktemp("members")
    layout = Layout(home / "federation")
    prepare(layout, federation_of(("ada", "ben"), 1, 8002))
    write_request("cleo", home / "site.key", home / "cleo.csr")
    admit(layout, "cleo", home / "cleo.csr")
    return home


@pytest.fixture
def layout(made: Path, tmp_path: Path) -> Layout:
    shutil.copytree(made, tmp_path / "made")
    return Layout(tmp_path / "made" / "federation")


def certificate(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def end_soon(layout: Layout, path: Path, days: int = 10) -> None:
    path.write_bytes(reissue(read_authority(layout), certificate(path), days))


def test_a_participant_is_renewed_for_the_key_that_it_has(layout: Layout) -> None:
    kit = layout.kits / "ada"
    before, key = certificate(kit / CERTIFICATE), (kit / KEY).read_bytes()
    end_soon(layout, layout.certificate("ada"))
    assert renew(layout, "ada") == kit
    after = certificate(kit / CERTIFICATE)
    assert (after.public_key(), after.subject) == (before.public_key(), before.subject)
    assert after.serial_number != before.serial_number
    assert (after.not_valid_after_utc - after.not_valid_before_utc).days == 360
    assert read_kit(kit).key == key  # the coordinator's copy still had it

    # Where the copy was deleted, the renewed kit holds no secret.
    shutil.rmtree(kit)
    assert cli.execute(["renew", "ada", "--federation", str(layout.directory)]) == 0
    assert read_kit(kit).key is None
    assert read_kit(kit).name == "ada"
    # One who lost the kit gets the renewed certificate, not the old one again.
    shutil.rmtree(kit)
    admit(layout, "ada")
    assert certificate(kit / CERTIFICATE).not_valid_before_utc >= after.not_valid_before_utc
    assert read_kit(kit).key == key


def test_a_participants_own_key_is_renewed_without_a_request(layout: Layout, made: Path) -> None:
    shutil.rmtree(layout.kits / "cleo")
    kit = read_kit(renew(layout, "cleo"))
    assert kit.key is None
    kit.check_key(made / "site.key", (made / "site.key").read_bytes())
    with pytest.raises(StoreError, match="unknown participant 'clio'; did you mean 'cleo'"):
        renew(layout, "clio")
    layout.certificate("cleo").unlink()
    shutil.rmtree(layout.kits / "cleo")
    with pytest.raises(StoreError, match=r"no certificate of cleo is known here: .*--request"):
        renew(layout, "cleo")


def test_the_coordinators_own_and_the_authority(layout: Layout) -> None:
    server = layout.server / "startup" / "server.crt"
    admin = layout.admin / "startup" / "client.crt"
    root = layout.server / "startup" / "rootCA.pem"
    before = {path: certificate(path) for path in (server, admin, root)}
    valid = before[root].not_valid_after_utc - before[root].not_valid_before_utc
    assert valid.days == 3600  # or nobody's certificate could be renewed after a year
    words = ["renew", "--server", "--authority", "--federation", str(layout.directory)]
    assert cli.execute(words) == 0
    for path, old in before.items():
        new = certificate(path)
        assert (new.public_key(), new.subject) == (old.public_key(), old.subject)
        assert new.serial_number != old.serial_number
        new.verify_directly_issued_by(certificate(root))
        new.verify_directly_issued_by(before[root])  # as participants with old kits check it
    certificate(layout.kits / "ben" / CERTIFICATE).verify_directly_issued_by(certificate(root))
    assert (layout.admin / "startup" / "rootCA.pem").read_bytes() == root.read_bytes()
    admit(layout, "dan")  # FLARE signs with it, too
    certificate(layout.kits / "dan" / CERTIFICATE).verify_directly_issued_by(certificate(root))
    assert cli.execute(["renew", "--federation", str(layout.directory)]) == 2


def test_an_authority_of_a_year_can_be_used_further(layout: Layout) -> None:
    """As FLARE made it before: it insists on how long the present one is valid."""
    authority = read_authority(layout)
    tree = json.loads(layout.authority.read_text())
    tree["root_cert"] = reissue(authority, authority.certificate, 360).decode()
    layout.authority.write_text(json.dumps(tree))
    admit(layout, "dan")
    renew_authority(layout)
    admit(layout, "eve")
    assert read_kit(layout.kits / "eve").name == "eve"


def test_certificates_that_expire_soon_are_warned_of(
    layout: Layout, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("pfedes.deploy.coordinator.status._contacts", lambda *asked: None)
    names = ("ada", "ben", "cleo")
    assert endings(layout, names) == []
    end_soon(layout, layout.certificate("ben"))
    end_soon(layout, layout.server / "startup" / "server.crt")
    server, ben = endings(layout, names)
    assert server.startswith("the certificate of server expires on 20")
    assert server.endswith("in 9 days: 'pfedes renew --server' renews it")
    assert ben.endswith("in 9 days: 'pfedes renew ben' renews it")
    capsys.readouterr()
    assert cli.execute(["status", str(layout.directory), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["warnings"] == [server, ben]
    assert [person["certificate"] is None for person in shown["people"]] == [False] * 3
    renew(layout, "ben")
    renew_server(layout)
    assert endings(layout, names) == []


def test_a_participant_is_warned_of_its_own(
    layout: Layout, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    monkeypatch.setattr("pfedes.deploy.participant.join.again", lambda *handed, **over: None)
    monkeypatch.setattr("pfedes.deploy.participant.join.write_site", lambda *arguments: None)
    person = read_participant(write_participant(tmp_path / "ada", "ada", 0, 2))

    def join() -> None:
        Joining(layout.kits / "ada", person, print).run()

    join()
    assert caplog.text == ""
    end_soon(layout, layout.kits / "ada" / CERTIFICATE)
    join()
    assert "your certificate expires on 20" in caplog.text
    assert "in 9 days: ask the coordinator for a new kit, by 'pfedes renew ada'" in caplog.text
    end_soon(layout, layout.kits / "ada" / CERTIFICATE, days=0)
    with pytest.raises(StoreError, match="your certificate expired on 20"):
        join()


def people(layout: Layout) -> tuple[str, ...]:
    return configure(layout.config).federation.participants


def test_an_expelled_participant_comes_back_only_deliberately(
    layout: Layout, made: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = read_certificate(layout.certificate("ben"))
    old_key = (layout.kits / "ben" / KEY).read_bytes()
    elsewhere = layout.provision.rename(layout.directory / "elsewhere")  # nobody needs it for this
    assert cli.execute(["revoke", "ben", "--federation", str(layout.directory)]) == 0
    elsewhere.rename(layout.provision)
    assert people(layout) == ("ada", "cleo")
    assert not (layout.kits / "ben").exists()
    assert read_revocations(layout.revoked).refuses(old)
    with pytest.raises(StoreError, match="unknown participant 'bob'"):
        revoke(layout, "bob")

    # Neither a file that still names ben, nor an admission by mistake.
    assert prepare(layout, federation_of(("ada", "ben", "cleo"), 1, 8002)) == []
    assert "ben was revoked and is left out" in caplog.text
    assert people(layout) == ("ada", "cleo")
    with pytest.raises(StoreError, match=r"ben was revoked on 20.*'pfedes admit ben --again'"):
        admit(layout, "ben")
    with pytest.raises(StoreError, match="unknown participant 'ben'"):
        renew(layout, "ben")
    assert not (layout.kits / "ben").exists()

    words = ["admit", "ben", "--again", "--federation", str(layout.directory)]
    assert cli.execute(words) == 0
    assert set(people(layout)) == {"ada", "ben", "cleo"}
    assert (layout.kits / "ben" / KEY).read_bytes() != old_key
    revoked = read_revocations(layout.revoked)
    assert revoked.names == set()
    assert revoked.refuses(old)
    assert not revoked.refuses(read_certificate(layout.certificate("ben")))
    # Expelled a second time, the second identity goes, too.
    second = read_certificate(layout.certificate("ben"))
    revoke(layout, "ben")
    assert read_revocations(layout.revoked).refuses(second)


def test_a_revoked_key_is_not_signed_again(layout: Layout, made: Path) -> None:
    revoke(layout, "cleo")
    with pytest.raises(StoreError, match="is for a key that was revoked: cleo removes"):
        admit(layout, "cleo", made / "cleo.csr", again=True)
    assert "cleo" not in people(layout)
    write_request("cleo", made / "new.key", made / "new.csr")
    admit(layout, "cleo", made / "new.csr", again=True)
    kit = read_kit(layout.kits / "cleo")
    kit.check_key(made / "new.key", (made / "new.key").read_bytes())
    assert not read_revocations(layout.revoked).refuses(
        read_certificate(layout.certificate("cleo"))
    )
