"""One distributed installation per file, with the members that no test of the file takes away."""

from collections.abc import Iterator

import pytest

from tests.support.cluster import Cluster, cluster


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with cluster(tmp_path_factory.mktemp("cluster")) as made:
        yield made
