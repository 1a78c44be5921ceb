// Command amdgpu is a device plugin of Nomad for the GPUs of AMD. It reads sysfs alone: no
// library of ROCm is linked or called. With --list it prints what it would offer.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/nomad/plugins"
)

func main() {
	list := flag.Bool("list", false, "print the GPUs of this machine and end")
	sys := flag.String("sysfs", "/sys", "with --list: where sysfs is")
	dev := flag.String("dev", "/dev", "with --list: where device nodes are")
	flag.Parse()
	if *list {
		if err := printGPUs(sysfs{sys: *sys, dev: *dev}); err != nil {
			fmt.Fprintln(os.Stderr, "amdgpu:", err)
			os.Exit(1)
		}
		return
	}
	plugins.ServeCtx(func(_ context.Context, log hclog.Logger) any { return newPlugin(log) })
}

func printGPUs(s sysfs) error {
	gpus, err := s.find()
	if err != nil {
		return err
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "PCI\tDEVICE\tID\tGFX\tCUS\tMEMORY\tRENDER\tHEALTH")
	for _, g := range gpus {
		health := g.unwell
		if health == "" {
			health = "ok"
		}
		fmt.Fprintf(w, "%s\tamd/gpu/%s\t%s\t%s\t%d\t%d MiB\trenderD%d\t%s\n", g.pci, g.group(), g.id, g.gfx, g.computeUnits, g.vramBytes>>20, g.render, health)
	}
	return w.Flush()
}
