"""What `up` refuses before it touches anything."""

import socket

import pytest
from tests.cluster.rig.trouble import Trouble
from tests.cluster.rig.up import _demand_free
from tests.ports import free_port


def test_port_that_somebody_has_is_reported_with_the_variable_that_names_another():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(Trouble, match=rf"port {port} of 127.0.0.1 is taken.*GANGLINE_TEST_API_PORT names another"):
            _demand_free(port, "GANGLINE_TEST_API_PORT")


def test_free_port_is_taken_by_no_one():
    port = free_port()
    _demand_free(port, "GANGLINE_TEST_API_PORT")
