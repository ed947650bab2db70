"""`make api-keys`: what it accepts, and that no message holds a key."""

import pytest
import yaml

from ops.api_keys import api_keys_text
from ops.errors import UserError

KEY = "0123456789abcdef"


def test_each_client_is_a_policy_with_its_key() -> None:
    odd = 'a "quoted" key = \\ 123'
    document = yaml.safe_load(api_keys_text([f"team-a={KEY}\n", "\n", f"team-b={odd}\n"]))
    policies = document["resources"][0]["typed_config"]["rules"]["policies"]
    keys = {
        client: policy["principals"][0]["header"]["string_match"]["exact"]
        for client, policy in policies.items()
    }
    assert keys == {"team-a": KEY, "team-b": odd}


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ([], "no keys"),
        (["team-a"], "line 1: accepted: <client>=<key>"),
        ([f"a={KEY}", f"a={KEY}x"], "line 2: "),
        ([f"a={KEY}", f"b={KEY}"], "two clients have the same key"),
        ([f"Team A={KEY}"], "clients are named in lower-case letters"),
        (["a=s3cret"], "the API key of a): accepted: 16 printable ASCII characters or more"),
        (["a=s3cret-s3cret-s3cr\u00e9t"], "16 printable ASCII"),
    ],
)
def test_what_is_no_list_of_keys_is_refused_without_showing_one(lines: list[str], said: str) -> None:
    with pytest.raises(UserError) as raised:
        api_keys_text(lines)
    assert said in str(raised.value)
    assert KEY not in str(raised.value)
    assert "s3cr" not in str(raised.value)
