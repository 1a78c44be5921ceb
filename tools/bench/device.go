package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"temper/internal/cli"
	"temper/internal/proc/buildinfo"
	"temper/tools/bench/devicebench"
	"temper/trainer/device"
	"temper/trainer/xla/plugin"
)

// deviceOptions say what bench device measures, and where its report goes.
type deviceOptions struct {
	device, kind, size, report, python, tests string
	one                                       string // a case, as JSON: the process of one
	choose                                    bool
}

func deviceCommand() *cobra.Command {
	var o deviceOptions
	cmd := &cobra.Command{
		Use: "device", Short: "Measure a GPU that XLA drives, and keep a report", Args: cobra.NoArgs,
		Long: `Checks a backend against the backend go, on one device and on meshes of all of them, measures
training steps (float32, bfloat16, long rows) and decoding, and holds the memory of a step
against the plan. With --python the same steps are made in PyTorch. report.json and report.md
go into the folder of --report. Each measurement is a process of its own.`,
	}
	f := cmd.Flags()
	f.StringVar(&o.device, "device", "", "backend such as xla:cuda, xla:rocm or xla:cpu; empty = the GPU of this machine")
	f.StringVar(&o.kind, "kind", "", "data sheet for the share of the peak, such as MI300X; empty = by the driver's name of the GPU")
	f.StringVar(&o.size, "size", "", "small or large networks; empty = small on the CPU, large on a GPU")
	f.StringVar(&o.report, "report", "device-report", "folder of the report")
	f.StringVar(&o.python, "python", "", "Python interpreter that has torch, to measure PyTorch's steps beside ours")
	f.StringVar(&o.tests, "tests", "", "output of go test -json on this device, for the report")
	f.BoolVar(&o.choose, "choose", false, "print the plugin that would be measured, and nothing else")
	f.StringVar(&o.one, "case", "", "measure one case in this process")
	_ = f.MarkHidden("case")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.one != "" {
			return measureCase(cmd.Context(), cmd.OutOrStdout(), o.one)
		}
		backend, err := devicebench.Choose(o.device, os.DirFS("/"))
		if err != nil {
			return err
		}
		if o.choose {
			fmt.Fprintln(cmd.OutOrStdout(), devicebench.PluginOf(backend))
			return nil
		}
		size := devicebench.Size(o.size)
		if size == "" {
			size = devicebench.Large
			if devicebench.PluginOf(backend) == "cpu" {
				size = devicebench.Small
			}
		}
		if size != devicebench.Small && size != devicebench.Large {
			return cli.Usagef("--size: %q, want small or large", o.size)
		}
		if err := device.Check(backend); err != nil {
			return cli.Usagef("--device: %w", err)
		}
		return measureDevice(cmd.Context(), o, backend, size, cmd.OutOrStdout())
	}
	return cmd
}

// measureCase is the process of one case.
func measureCase(ctx context.Context, out io.Writer, text string) error {
	var c devicebench.Case
	if err := json.Unmarshal([]byte(text), &c); err != nil {
		return cli.Usagef("--case: %w", err)
	}
	r, err := devicebench.Measure(ctx, c)
	if err != nil {
		r.Error, _, _ = strings.Cut(err.Error(), "\n")
	}
	return cli.PrintJSON(out, r)
}

// measureDevice makes all cases and saves the report after each, so that what is there
// stays there.
func measureDevice(ctx context.Context, o deviceOptions, backend string, size devicebench.Size, out io.Writer) error {
	r, err := describeDevice(ctx, o, backend)
	if err != nil {
		return err
	}
	r.Size = size
	fmt.Fprintf(out, "%s: %d x %s, %s\n", r.Backend, r.Devices, r.Device, r.Plugin)
	for _, c := range devicebench.Cases(backend, r.Devices, size) {
		one, err := childCase(ctx, c)
		if err != nil {
			return err
		}
		if r.Peak > 0 {
			one.MFU = one.FLOPS / r.Peak / float64(devicesOf(c.Mesh))
		}
		if o.python != "" && c.Peer && one.Error == "" {
			if one.Torch, err = devicebench.Torch(ctx, o.python, c); err != nil {
				one.TorchError = err.Error()
			}
		}
		r.Results = append(r.Results, one)
		if err := r.Save(o.report); err != nil {
			return err
		}
		fmt.Fprintln(out, lineOf(one))
	}
	fmt.Fprintf(out, "report: %s/report.md and report.json\n", o.report)
	if failures := r.Failures(); len(failures) > 0 {
		return fmt.Errorf("%d failed: %s", len(failures), strings.Join(failures, "; "))
	}
	return nil
}

// describeDevice opens the backend and says what it is.
func describeDevice(ctx context.Context, o deviceOptions, backend string) (devicebench.Report, error) {
	r := devicebench.Report{When: time.Now(), Build: buildinfo.Line(), Backend: backend, Plugin: device.LibraryOf(backend)}
	if in, err := plugin.Describe(r.Plugin); err == nil { // one that Temper has installed
		r.Plugin = in.Package + " " + in.Version
	}
	b, err := device.Open(backend)
	if err != nil {
		return r, err
	}
	r.Device, r.Devices = b.Description(), b.NumDevices()
	b.Finalize()
	kind, ok, err := devicebench.Kind(ctx, o.kind, backend)
	if err != nil {
		return r, cli.Usagef("--kind: %w", err)
	}
	if ok {
		r.Kind, r.Peak = kind.Name, kind.FLOPS
	}
	load := ""
	if text, err := os.ReadFile("/proc/loadavg"); err == nil {
		load = ", load " + strings.Join(strings.Fields(string(text))[:3], " ")
	}
	r.Host = fmt.Sprintf("%d cores%s", runtime.NumCPU(), load)
	if o.tests == "" {
		return r, nil
	}
	file, err := os.Open(o.tests)
	if err != nil {
		return r, err
	}
	defer file.Close() //nolint:errcheck // read only
	if r.Tests, err = devicebench.ReadTests(file); err != nil {
		return r, fmt.Errorf("--tests %s: %w", o.tests, err)
	}
	return r, nil
}

// casePatience is how long a case may take; compiling a large network is most of it.
const casePatience = 30 * time.Minute

// childCase measures a case in a process of its own. One that does not end well is a
// result with an error.
func childCase(ctx context.Context, c devicebench.Case) (devicebench.Result, error) {
	self, err := os.Executable()
	if err != nil {
		return devicebench.Result{}, err
	}
	text, err := json.Marshal(c)
	if err != nil {
		return devicebench.Result{}, err
	}
	limited, cancel := context.WithTimeout(ctx, casePatience)
	defer cancel()
	cmd := exec.CommandContext(limited, self, "device", "--case", string(text)) //nolint:gosec // this program itself
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err = cmd.Run()
	if ctx.Err() != nil {
		return devicebench.Result{}, context.Cause(ctx)
	}
	r := devicebench.Result{Case: c}
	if limited.Err() != nil {
		err = fmt.Errorf("no end after %v", casePatience)
	} else if err == nil {
		err = json.Unmarshal(out.Bytes(), &r)
	}
	if err != nil {
		lines := strings.Split(strings.TrimSpace(errs.String()), "\n")
		r.Error = err.Error() + ": " + lines[len(lines)-1]
	}
	return r, nil
}

// devicesOf counts those of a mesh that ParseMesh reads.
func devicesOf(mesh string) int {
	m, err := device.ParseMesh(mesh)
	if err != nil {
		return 1
	}
	return max(1, m.NumDevices())
}

// lineOf is what the terminal shows of a case.
func lineOf(r devicebench.Result) string {
	switch {
	case r.Error != "":
		return r.String() + ": FAILED: " + r.Error
	case r.Work == devicebench.Check:
		return fmt.Sprintf("%s: as the backend go, %.1f s", r, r.Seconds)
	}
	s := fmt.Sprintf("%s: %.0f tokens/s", r, r.TokensPerSecond)
	if r.Compiled > 0 {
		s += fmt.Sprintf(", memory %.3f GB, planned %.3f", float64(r.Compiled)/1e9, float64(r.Planned)/1e9)
	}
	for _, p := range r.Torch {
		s += fmt.Sprintf(", PyTorch %s %.0f", p.Mode, p.TokensPerSecond)
	}
	return s
}
