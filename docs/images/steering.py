"""Makes the pictures of docs/operator.md and docs/admin.md: python -m docs.images.steering."""

from playwright.sync_api import Page

from docs.images.demo_site import FOLDER, admins_page


def make() -> None:
    with admins_page(1200, 800) as (page, admin):
        take(page, admin)


def take(page: Page, admin: str) -> None:
    page.goto(f"{admin}agentruns/run/")
    page.locator("#result_list tbody tr").nth(2).wait_for()
    page.click("#result_list tbody th a")
    page.locator("#run").wait_for()
    shot(page, "run")
    page.goto(f"{admin}agentruns/run/attention/")
    shot(page, "attention", height=420)
    page.goto(f"{admin}agentruns/agent/")
    page.click("#result_list tbody th a")
    shot(page, "agent")
    page.fill("#id_instructions", "You review deployments. Ask before anything is deployed.")
    page.locator("input[name=_save]").first.click()
    page.click("#result_list tbody th a")
    page.click("text=Versions")
    shot(page, "versions", height=600)


def shot(page: Page, name: str, height: int = 800) -> None:
    page.set_viewport_size({"width": 1200, "height": height})
    page.screenshot(path=FOLDER / f"{name}.png")


if __name__ == "__main__":
    make()
