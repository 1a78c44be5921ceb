package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// TestDrawer: a fork from the page needs a reason, and shows what it changes before it is
// sent; without a Temporal server the answer says so.
func TestDrawer(t *testing.T) {
	token := strings.Repeat("0123456789abcdef", 4)
	t.Setenv("TEMPER_UI_TOKEN", token)
	home, ctx := dashboardWith(t, func(string) {}, "--temporal", "127.0.0.1:1"), browser(t)
	at := func(what, condition string) {
		t.Helper()
		if _, err := await[bool](ctx, condition); err != nil {
			text, _ := chromedp.Run(ctx, chromedp.Evaluate[string](`(document.querySelector(".drawer") ?? document.body).innerText`))
			t.Fatalf("%s: %v\n%s", what, err, text)
		}
	}
	do := func(actions ...chromedp.Action[chromedp.Void]) {
		t.Helper()
		for _, a := range actions {
			if err := chromedp.Do(ctx, a); err != nil {
				t.Fatal(err)
			}
		}
	}
	write := func(selector, text string) {
		t.Helper()
		do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`{ const e = document.querySelector(%q); e.focus(); e.select(); }`, selector)), chromedp.KeyEvent(text))
	}
	do(chromedp.Navigate(home + "/runs/demo/checkpoints#token=" + token))
	at("checkpoints", `[...document.querySelectorAll("td button")].some((b) => b.textContent === "fork")`)
	if hash, err := chromedp.Run(ctx, chromedp.Evaluate[string](`location.hash`)); err != nil || hash != "" {
		t.Errorf("the token stays in the address: %q %v", hash, err)
	}
	do(chromedp.Evaluate[chromedp.Void](`[...document.querySelectorAll("td button")].find((b) => b.textContent === "fork").click()`))
	at("drawer", `document.querySelector(".drawer select")?.value === "fork" && !!document.querySelector(".drawer textarea")`)
	at("no reason, no button", `document.querySelector(".drawer form > button:last-of-type").disabled`)
	write(".drawer textarea", "rl.optimizer.lr=0.5")
	write(".drawer input[required]", "try a higher rate")
	at("what changes", `document.querySelector(".drawer form > button:last-of-type").textContent === "show what changes"`)
	do(chromedp.Evaluate[chromedp.Void](`document.querySelector(".drawer form > button:last-of-type").click()`))
	at("preview", `document.querySelector(".preview ins")?.textContent === "0.5"`)
	shoot(t, ctx, "drawer-wide-light")
	do(chromedp.EmulateViewport(narrowest, 480))
	at("button on a narrow screen", `(() => {
		const d = document.querySelector(".drawer"), b = d.querySelector("form > button:last-of-type");
		d.scrollTop = d.scrollHeight;
		const r = b.getBoundingClientRect(), at = document.elementFromPoint(r.x + r.width / 2, r.bottom - 3);
		return at === b && document.elementFromPoint(r.x + 3, innerHeight - 4).closest(".drawer") === d;
	})()`)
	do(chromedp.EmulateViewport(1440, 900))
	do(chromedp.Evaluate[chromedp.Void](`document.querySelector(".drawer form > button:last-of-type").click()`))
	at("answer", `!!document.querySelector(".drawer .note-bad")`)
	// A drawer that is open begins anew with another wish.
	press := func(i int) {
		t.Helper()
		do(chromedp.Evaluate[chromedp.Void](fmt.Sprintf(`[...document.querySelectorAll("td button")].filter((b) => b.textContent.endsWith("pin"))[%d].click()`, i)))
	}
	for i := range 2 {
		press(i)
		at("wish", fmt.Sprintf(`document.querySelector(".drawer select")?.value.endsWith("pin") && document.querySelector(".drawer input[required]").value === [...document.querySelectorAll("tbody tr")][%d].cells[0].textContent`, i))
	}
	// The address that the start has printed, opened in a tab that shows the page.
	do(chromedp.Evaluate[chromedp.Void](`sessionStorage.clear(); location.hash = "token=another"`))
	at("token of an address in an open tab", `location.hash === "" && sessionStorage.getItem("temper.token") === "another"`)
}
