package loadgen

import (
	"context"
	"net/http"
	"time"

	"temper/sandbox"
)

// goJudgeTarget speaks the REST interface of github.com/criyle/go-judge, which runs
// commands: the command is started for each call, with the program as its last
// argument.
type goJudgeTarget struct {
	http *httpTarget
	args []string
	env  []string
}

// GoJudge returns the service at address.
func GoJudge(address string, args, env []string) (Target, error) {
	base, dial, err := ParseAddress(address)
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{DialContext: dial, MaxIdleConnsPerHost: 1 << 16, DisableCompression: true}
	return &goJudgeTarget{&httpTarget{base: base, client: &http.Client{Transport: transport}}, args, env}, nil
}

func (t *goJudgeTarget) Batch() int { return 1 }
func (t *goJudgeTarget) Close()     { t.http.Close() }

// goJudgeFile is an input with content, or an output with a name and a bound.
type goJudgeFile struct {
	Content *string `json:"content,omitempty"`
	Name    string  `json:"name,omitempty"`
	Max     int     `json:"max,omitempty"`
}

type goJudgeCommand struct {
	Args   []string      `json:"args"`
	Env    []string      `json:"env"`
	Files  []goJudgeFile `json:"files"`
	CPU    time.Duration `json:"cpuLimit"`
	Wall   time.Duration `json:"clockLimit"`
	Memory int64         `json:"memoryLimit"`
	Procs  int           `json:"procLimit"`
}

type goJudgeAnswer struct {
	Status string            `json:"status"`
	Error  string            `json:"error"`
	Exit   int               `json:"exitStatus"`
	CPU    time.Duration     `json:"time"`
	Wall   time.Duration     `json:"runTime"`
	Files  map[string]string `json:"files"`
}

// Do implements Target.
func (t *goJudgeTarget) Do(ctx context.Context, calls []Call) []Outcome {
	out := make([]Outcome, len(calls))
	for i, call := range calls {
		out[i] = t.call(ctx, call)
	}
	return out
}

func (t *goJudgeTarget) call(ctx context.Context, call Call) Outcome {
	const outputs = 1 << 20
	cmd := goJudgeCommand{
		Args: append(t.args[:len(t.args):len(t.args)], call.Program.Code), Env: t.env,
		Files: []goJudgeFile{{Content: &call.Program.Stdin}, {Name: "stdout", Max: outputs}, {Name: "stderr", Max: outputs}},
		CPU:   10 * time.Second, Wall: 20 * time.Second, Memory: 512 << 20, Procs: 64,
	}
	if m := call.Program.Limits.Memory; m > 0 {
		cmd.Memory = m
	}
	in := struct {
		Commands []goJudgeCommand `json:"cmd"`
	}{[]goJudgeCommand{cmd}}
	var answers []goJudgeAnswer
	if o := t.http.post(ctx, "/run", in, &answers); o.Class == Lost {
		return o
	}
	if len(answers) != 1 {
		return lost(KindNoAnswer, "not one answer to one command")
	}
	return answers[0].outcome(call)
}

// outcome translates the statuses of go-judge, of which any other means that it
// could not run the command.
func (a goJudgeAnswer) outcome(call Call) Outcome {
	res := sandbox.Result{Stdout: a.Files["stdout"], Stderr: a.Files["stderr"], ExitCode: a.Exit}
	res.Usage = sandbox.Usage{Wall: a.Wall, CPU: a.CPU}
	switch a.Status {
	case "Accepted":
		res.Status = sandbox.StatusOK
	case "Nonzero Exit Status":
		res.Status = sandbox.StatusError
	case "Memory Limit Exceeded":
		res.Status = sandbox.StatusMemoryLimit
	case "Time Limit Exceeded":
		res.Status = sandbox.StatusTimeLimit
	case "Output Limit Exceeded":
		res.Status = sandbox.StatusOutputLimit
	case "Signalled", "Dangerous Syscall":
		res.Status = sandbox.StatusKilled
	default:
		return lost("go_judge", a.Status+" "+a.Error)
	}
	return call.judge(res)
}
