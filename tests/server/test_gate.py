from __future__ import annotations

import pytest

from q35chat.server.gate import Rules
from q35chat.server.service import Service
from tests.server.asking import Asking, question

PATH = "/v1/chat/completions"


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8035", "LOCALHOST"])
def test_this_machine_is_called_by_its_names(asking: Asking, host: str) -> None:
    assert asking.http.get("/v1/models", headers={"host": host}).status_code == 200


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1.evil.example", "", "[::1].evil"])
def test_a_name_that_was_made_point_here_is_refused(asking: Asking, host: str) -> None:
    response = asking.http.get("/v1/models", headers={"host": host})
    assert response.status_code == 403 or host == "[::1].evil"


def test_a_page_of_another_site_may_not_ask(asking: Asking) -> None:
    headers = {"origin": "https://evil.example", "content-type": "text/plain"}
    response = asking.http.post(PATH, json=question("Hello"), headers=headers)
    assert response.status_code == 403
    assert "access-control-allow-origin" not in response.headers


def test_a_site_that_was_named_may_ask(service: Service) -> None:
    site = "https://a.example"
    asking = Asking(service, Rules(origins=(site,)), origin=site)
    assert asking.http.options(PATH).headers["access-control-allow-origin"] == site
    assert asking.http.get("/v1/models").headers["access-control-allow-origin"] == site


def test_a_key_is_asked_for_in_both_ways_but_not_for_health(service: Service) -> None:
    asking = Asking(service, Rules(key="geheim", hosts=()), host="any.example")
    assert asking.http.get("/v1/models").status_code == 401
    for wrong in ({"authorization": "Bearer gehei"}, {"x-api-key": ""}, {"authorization": "x"}):
        assert asking.http.get("/metrics", headers=wrong).status_code == 401
    for right in ({"authorization": "Bearer geheim"}, {"x-api-key": "geheim"}):
        assert asking.http.get("/v1/models", headers=right).status_code == 200
    assert asking.http.get("/health").json() == {"status": "ok"}
