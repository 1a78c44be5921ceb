package main

import (
	"bytes"
	"flag"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"temper/internal/cli"
)

var updateDocuments = flag.Bool("update", false, "rewrite the documents")

const planDocument = "../../docs/plan-14b.md"

// planBlock is a command and its output in the document.
var planBlock = regexp.MustCompile("(?s)```console\n\\$ temper ([^\n]*)\n(.*?)```")

// TestPlanDocument keeps the figures of the written plan those of the command.
func TestPlanDocument(t *testing.T) {
	document, err := os.ReadFile(planDocument)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(planBlock.FindAll(document, -1)); n < 3 {
		t.Fatalf("%d commands in %s, want at least 3", n, planDocument)
	}
	want := planBlock.ReplaceAllFunc(document, func(block []byte) []byte {
		line := string(planBlock.FindSubmatch(block)[1])
		var out, errs bytes.Buffer
		if code := execute(strings.Fields(line), &out, &errs); code != 0 {
			t.Fatalf("temper %s: exit code %d, %s", line, code, errs.String())
		}
		return []byte("```console\n$ temper " + line + "\n" + out.String() + "```")
	})
	if *updateDocuments {
		if err := os.WriteFile(planDocument, want, 0o644); err != nil { //nolint:gosec // a document for everybody
			t.Fatal(err)
		}
		return
	}
	if diff := cmp.Diff(string(document), string(want)); diff != "" {
		t.Errorf("%s is not what the command prints; rewrite it with -update (-document +command):\n%s", planDocument, diff)
	}
}

func TestPlanUsage(t *testing.T) {
	for _, c := range []struct{ args, want string }{
		{"--model 15b", "neither a file nor one of 0.6b, 1.7b, 14b, 32b, 4b, 8b"},
		{"--devices 8xMI400", `unknown kind "MI400", want one of MI300X`},
		{"--devices 0xH100", "want a number from 1 to 65536 and a kind"},
		{"--devices 9223372036854775807xH100", "want a number from 1 to 65536 and a kind"},
		{"--tokens 64 --slots 9223372036854775807 --context 100 --devices 8xMI300X", "slots: 9223372036854775807, want 0 to 1048576"},
		{"--tokens 64 --slots -1 --step-tokens -1", "slots: -1, want 0 to 1048576"},
		{"--tokens 64 --slots -1 --step-tokens -1 --mean-tokens -4000000", "step tokens: -1, want 0 to"},
		{"--tokens 64 --slots -1 --step-tokens -1 --mean-tokens -4000000", "mean tokens: -4000000, want 0 to"},
		{"--model /dev/zero", "/dev/zero is no config.json"},
		{"--devices 2xCPU", "the Go backend has one device"},
		{"--devices 8xH100 --mesh 3", "data x model"},
		{"--devices 8xH100 --mesh 2x2", "4 devices, there are 8"},
		{"--devices 16xH100 --model 14b --mesh 1x16", "num_key_value_heads: 8 is not a multiple of the model axis 16"},
		{"--tokens 50000", "tokens: 50000, want 1 to 40960"},
		{"--mfu 2", "mfu: 2"},
		{"--devices x --model y", "--model:"},
		{"--run ../../configs/none.yaml", "--run: configuration: open"},
		{"--run ../../configs/rstar2-14b.yaml", "--run: model.path is not there, name the network with --model"},
	} {
		var out, errs bytes.Buffer
		code := execute(append([]string{"plan"}, strings.Fields(c.args)...), &out, &errs)
		if code != cli.ExitUser || !strings.Contains(errs.String(), c.want) || out.Len() > 0 {
			t.Errorf("plan %s: exit code %d, error %q, output %q; want %d and %q", c.args, code, errs.String(), out.String(), cli.ExitUser, c.want)
		}
	}
}

// TestPlanOfARun: the command in the paper's configuration runs as it stands there
// and says that a step fits; flags go before the configuration.
func TestPlanOfARun(t *testing.T) {
	document, err := os.ReadFile("../../configs/rstar2-14b.yaml")
	if err != nil {
		t.Fatal(err)
	}
	stated := regexp.MustCompile(`(?m)^#   temper (plan .*)$`).FindSubmatch(document)
	if stated == nil {
		t.Fatal("no command in the configuration")
	}
	t.Chdir("../..")
	for _, c := range []struct{ flags, want string }{
		{"", "16 kept of each; contexts of up to 14336 tokens (model.max_context), 1 in a pass"},
		{"", "bfloat16, remat, vocabulary by 18992"},
		{"", "step: 40960000 tokens"},
		{"", ": fits"},
		{"--remat=false", "attention in blocks, several passes to an update"},
		{"--remat=false", "peak 142.415 of 192.000 GB a device (logits), headroom 49.585: fits"},
		{"--remat=false --mesh 8x1 --sequences 4", "too many"},
		{"--tokens 2048", ", 8 in a pass"},
		{"--run configs/demo.yaml --devices CPU --model 0.6b", "demo: 12 problems of 16 rollouts"},
	} {
		var out, errs bytes.Buffer
		args := append(strings.Fields(string(stated[1])), strings.Fields(c.flags)...)
		if code := execute(args, &out, &errs); code != 0 || !strings.Contains(out.String(), c.want) {
			t.Errorf("temper %s: exit code %d, %s\n%s\nwant %q", strings.Join(args, " "), code, &errs, &out, c.want)
		}
	}
	var out, errs bytes.Buffer
	if code := execute([]string{"plan", "--run", "configs/demo.yaml"}, &out, &errs); code != 0 || !strings.Contains(out.String(), "0.000401 billion parameters on 1 x CPU") {
		t.Errorf("the plan of the demo: exit code %d, %s\n%s", code, &errs, &out)
	}
}
