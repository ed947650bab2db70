"""What brings Envoy its files: one container that stages them, one that has a running Envoy take them."""

import hashlib
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace

import pulumi

from components.config_volume import ConfigVolumeArgs, PublishedFile
from components.container import Attachment
from components.drain import drain_files, ends_drains
from components.envoy_config import CONFIG_FOLDER, ENVOY_BINARY
from components.envoy_edge import EDGE_FILES, edge_files, secret_files
from components.envoy_files import bootstrap_file, envoy_files
from components.envoy_run import RUN_SCRIPT, end_s, envoy_arguments, wanted_run
from components.envoy_secrets import CERTIFICATE_DIGEST, Secrets, certificate_digest, private_files
from components.plan import FrontEndPlan
from components.scripts import script
from components.settings import STATUS_PORT

_FILES = "/publish/then"
_WANTED = f"{_FILES}/envoy.run"
# A refusal is seen within seconds; what the provider waits for one that failed is the whole of it.
_PATIENCE_S = 60
_START_S = 28  # for an Envoy that takes over
_LONGEST_END_S = 120
_MEMORY_MIB = 512  # for the Envoy that tries the files


@dataclass(frozen=True, kw_only=True)
class Delivery:
    """The files of a node's Envoy, and the containers that bring them there."""

    plan: FrontEndPlan
    network: pulumi.Input[str]
    """The node's serving network."""
    secrets: Secrets
    image: pulumi.Resource | None

    def publisher(self) -> ConfigVolumeArgs:
        """Tries the new files in an Envoy of its own, then stages them.

        The bootstrap, under a name of its own, is there before an Envoy that is to read it.
        """
        plan = self.plan
        bootstrap, text = bootstrap_file(plan)
        tried = (CONFIG_FOLDER, STATUS_PORT, ENVOY_BINARY, *envoy_arguments(plan, workers=1))
        rehearsal = [
            f"mkdir -p {CONFIG_FOLDER}",
            f'cp "$from"/files/* {_FILES}/* {CONFIG_FOLDER}',
            f"tried=0; rehearse {_words(tried)} || tried=1",
            f"rm -rf {CONFIG_FOLDER}/*",  # keys among them
            '((tried == 0)) || fail "Envoy does not take these files; nothing was changed"',
        ]
        # Certificates and keys go with the bootstrap: Envoy reads them again by itself.
        texts = {bootstrap: text, RUN_SCRIPT: script(RUN_SCRIPT), **drain_files(plan)}
        files = {name: PublishedFile(text=text) for name, text in texts.items()}
        files |= private_files(plan, self.secrets)
        staged = [
            f'stage {_FILES} "$volume" {_words(self._envoy)}',
            f'stage_run {_WANTED} {ENVOY_BINARY} "$volume" {_words(self._envoy)}',
        ]
        digest = certificate_digest(plan, self.secrets)
        if digest:
            note = f'note_certificate {_FILES}/{CERTIFICATE_DIGEST} "$volume" {_words(self._envoy)}'
            rehearsal.append(f'{note} || fail "the volume cannot be written"')
            staged.insert(0, f'await_certificate {_words(self._envoy)} || fail "Envoy did not take a file"')
        return ConfigVolumeArgs(
            plan=plan.config,
            files=files,
            first=_script(rehearsal),
            # The trial may have taken all of its time.
            then="\n".join([script("envoy_upgrade.sh"), "deadline=$((SECONDS + staged_s))", *staged, ""]),
            then_files={**envoy_files(plan), "envoy.run": wanted_run(plan), **digest},
            attachments=[Attachment(network=self.network, address=str(plan.config.address))],
            memory_mib=_MEMORY_MIB,
            patience_s=_PATIENCE_S,
            image=self.image,
        )

    def acceptance(self, replaced_by: Sequence[str] = ()) -> ConfigVolumeArgs:
        """Waits until Envoy has taken what is staged, in the order in which no request is lost.

        `replaced_by` are digests of what replaces the instances: once any was, nobody may be left drained.
        """
        apply = f'apply "$volume/.next" "$volume" {_words(self._envoy)}'
        # The Envoy before last may have to end first. Where requests take long, `up` does not wait for that.
        patience = _START_S + min(end_s(self.plan), _LONGEST_END_S)
        take_over = f'take_over "$volume/.next" "$volume" {_words((*self._envoy, patience))}'
        used = {*edge_files(self.plan), *(file.name for file in secret_files(self.plan))}
        # A key that nobody uses any more is in nobody's way, until somebody finds it.
        unused = [f'rm -f "$volume/{name}"' for name in EDGE_FILES if name not in used]
        return ConfigVolumeArgs(
            plan=replace(
                self.plan.config, container=self.plan.acceptance, labels=self.plan.acceptance_labels
            ),
            files={},
            then=_script(
                [
                    script("envoy_upgrade.sh"),
                    ends_drains("$volume"),
                    f'{apply} || fail "Envoy did not take the files"',
                    f'{take_over} || fail "another Envoy did not take over"',
                    *unused,
                ]
            ),
            # Other files, another container: this one must look again.
            then_files={
                "wanted": _digest([*envoy_files(self.plan).values(), wanted_run(self.plan), *replaced_by])
            },
            attachments=[Attachment(network=self.network, address=str(self.plan.acceptance_address))],
            patience_s=_PATIENCE_S + patience,
            image=self.image,
        )

    @property
    def _envoy(self) -> tuple[object, ...]:
        return self.plan.serving_address, STATUS_PORT


def _script(lines: list[str]) -> str:
    return "\n".join([script("envoy_files.sh"), *lines, ""])


def _words(values: tuple[object, ...]) -> str:
    return shlex.join(str(value) for value in values)


def _digest(texts: Sequence[str]) -> str:
    return hashlib.sha256("".join(texts).encode()).hexdigest() + "\n"
