import http.server
import os
import threading

import pytest

from grpo_kit.hub import use_cache_if_unreachable


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "to be removed, and put back afterwards")
    monkeypatch.delenv("HF_HUB_OFFLINE")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", False)
    for proxy in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(proxy, raising=False)


def test_an_unreachable_hub_switches_its_libraries_offline(monkeypatch):
    import huggingface_hub

    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")  # nothing listens there
    assert not use_cache_if_unreachable()
    assert os.environ["HF_HUB_OFFLINE"] == "1"
    assert huggingface_hub.constants.HF_HUB_OFFLINE is True


@pytest.mark.parametrize("status", [200, 403, 500])
def test_any_answer_is_an_answer(monkeypatch, status):
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_HEAD(self):
            self.send_response(status)
            self.end_headers()

        def log_message(self, *args):
            pass

    with http.server.HTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.handle_request, daemon=True).start()
        monkeypatch.setenv("HF_ENDPOINT", f"http://127.0.0.1:{server.server_port}")
        assert use_cache_if_unreachable()
    assert "HF_HUB_OFFLINE" not in os.environ


def test_what_the_user_set_stays(monkeypatch):
    monkeypatch.setenv("HF_HUB_OFFLINE", "0")
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:1")
    assert not use_cache_if_unreachable()
    assert os.environ["HF_HUB_OFFLINE"] == "0"
