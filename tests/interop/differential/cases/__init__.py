"""The table of all cases, grouped by what they are about."""

from __future__ import annotations

from typing import Final

from tests.interop.differential.case import Case
from tests.interop.differential.cases.cluster import CLUSTER_CASES
from tests.interop.differential.cases.configs import CONFIG_CASES
from tests.interop.differential.cases.fetch import FETCH_CASES
from tests.interop.differential.cases.group_admin import GROUP_ADMIN_CASES
from tests.interop.differential.cases.group_offsets import GROUP_OFFSET_CASES
from tests.interop.differential.cases.header import HEADER_CASES
from tests.interop.differential.cases.membership import MEMBERSHIP_CASES
from tests.interop.differential.cases.metadata import METADATA_CASES
from tests.interop.differential.cases.mutated import MUTATED_CASES
from tests.interop.differential.cases.offsets import OFFSET_CASES
from tests.interop.differential.cases.primitives import PRIMITIVE_CASES
from tests.interop.differential.cases.produce import PRODUCE_CASES
from tests.interop.differential.cases.quorum import QUORUM_CASES
from tests.interop.differential.cases.topics import TOPIC_CASES
from tests.interop.differential.cases.transactions import TRANSACTION_CASES

CASES: Final[tuple[Case, ...]] = (
    *HEADER_CASES,
    *PRIMITIVE_CASES,
    *METADATA_CASES,
    *PRODUCE_CASES,
    *FETCH_CASES,
    *OFFSET_CASES,
    *TOPIC_CASES,
    *CONFIG_CASES,
    *CLUSTER_CASES,
    *QUORUM_CASES,
    *MEMBERSHIP_CASES,
    *GROUP_OFFSET_CASES,
    *GROUP_ADMIN_CASES,
    *MUTATED_CASES,
    *TRANSACTION_CASES,
)
