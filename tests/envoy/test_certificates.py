"""The publisher waits until Envoy serves the certificate that it brought."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.envoy import stand_ins
from tests.envoy.ground import Said, run_script
from tests.envoy.harness import Site, site, wait_for
from tests.envoy.pools import SmallPool

pytestmark = pytest.mark.envoy


@pytest.fixture
def made(envoy_binary: Path, tmp_path: Path) -> Iterator[Site]:
    pool = SmallPool(instances=1, models=["resnet"])
    with site(envoy_binary, tmp_path, [pool], {"tls": {}}) as running:
        yield running


def bring(
    made: Site, digest: str, certificate: str, key: str, patience_s: int = 10, awaited: bool = True
) -> Said:
    """Files of a certificate and its key, as the publisher puts them, and what it waits for."""
    fresh = made.log.parent / "fresh"
    fresh.mkdir(exist_ok=True)
    texts = {"digest": digest, "tls.crt": certificate, "tls.key": key}
    for name, text in texts.items():
        (fresh / name).write_text(text)
    folder, envoy = made.ground.folder, f"127.0.0.1 {made.ground.status_port}"
    put = "; ".join(
        f"cp {fresh / name} {folder}/.new; mv {folder}/.new {folder / name}"
        for name in ("tls.crt", "tls.key")
    )
    steps = f"note_certificate {fresh}/digest {folder} {envoy}; {put}"
    if awaited:
        steps += f"; await_certificate {envoy}"
    return run_script("eval", steps, work=fresh, patience_s=patience_s)


def test_a_new_certificate_is_waited_for_and_the_same_one_again_is_not(made: Site) -> None:
    # Nothing says yet which one Envoy has.
    assert bring(made, "1", *stand_ins.certificate()) == Said(0, "")
    second = stand_ins.certificate("second")
    told = "Envoy at 127.0.0.1 serves the new certificate\n"
    assert bring(made, "2", *second) == Said(0, told)
    assert bring(made, "2", *second) == Said(0, "")


def test_a_certificate_that_envoy_cannot_use_is_said(made: Site) -> None:
    first = stand_ins.certificate()
    assert bring(made, "1", *first) == Said(0, "")
    said = bring(made, "2", stand_ins.certificate("second")[0], first[1], patience_s=2)
    assert (said.code, "still serves the certificate from before" in said.said) == (1, True), said.said
    # Nor is it taken for served when the next `up` brings it again.
    said = bring(made, "2", stand_ins.certificate("second")[0], first[1], patience_s=2)
    assert (said.code, "still serves the certificate from before" in said.said) == (1, True), said.said
    # Another Envoy has read it as it began.
    (made.ground.folder / ".said").mkdir()
    (made.ground.folder / ".said" / "envoy").write_text("serves\n")
    assert bring(made, "2", *stand_ins.certificate("second"), patience_s=2) == Said(0, "")


def test_a_certificate_that_envoy_took_after_its_publisher_was_killed_is_not_waited_for_in_vain(
    made: Site,
) -> None:
    def taken() -> int:
        lines = made.admin("/stats?filter=ssl_context_update_by_sds").body.decode().splitlines()
        return sum(int(line.rsplit(" ")[-1]) for line in lines)

    assert bring(made, "1", *stand_ins.certificate()) == Said(0, "")
    second, before = stand_ins.certificate("second"), taken()
    assert bring(made, "2", *second, awaited=False) == Said(0, "")
    wait_for("Envoy takes it", lambda: taken() > before)
    told = "Envoy at 127.0.0.1 serves the new certificate\n"
    assert bring(made, "2", *second, patience_s=3) == Said(0, told)
    assert bring(made, "2", *second) == Said(0, "")
