"""What several tests share."""

import pytest

from tests.checkout import Checkout


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """The tiny study, run once for real from a fresh checkout; tests copy it and leave it as it is."""
    checkout = Checkout.clone(tmp_path_factory.mktemp("tiny") / "assay")
    checkout.executed = checkout.run()
    return checkout
