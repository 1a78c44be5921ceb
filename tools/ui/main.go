// Command ui makes the page of the dashboard: `ui build` bundles ui/src with the
// libraries in ui/vendor into ui/dist, and `ui vendor NAME@VERSION` replaces one of
// these libraries by another version of it. Building needs no network and no Node.
//
// Invariant: equal inputs give equal bytes in ui/dist.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "ui:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	root, err := findRoot()
	if err != nil {
		return err
	}
	switch {
	case len(args) == 1 && args[0] == "build":
		return write(root)
	case len(args) == 2 && args[0] == "vendor":
		return vendor(ctx, root, args[1])
	default:
		return fmt.Errorf("want one of: build, vendor NAME@VERSION")
	}
}
