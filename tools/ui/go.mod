module temper/tools/ui

go 1.27

require (
	github.com/chromedp/cdproto v0.0.0-20250803210736-d308e07a266d
	github.com/chromedp/chromedp v0.23.0
	github.com/evanw/esbuild v0.28.2
)
