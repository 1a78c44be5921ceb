package codejudge

import (
	"bytes"
	"encoding/json"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"temper/sandbox"
)

// reason explains a submission without a plain success or failure.
type reason string

// All reasons of the API.
const (
	reasonNone         reason = ""
	reasonInternal     reason = "internal_error"
	reasonWorkerTime   reason = "worker_timeout"
	reasonQueueTime    reason = "queue_timeout"
	reasonInvalidInput reason = "invalid_input"
)

// language is the type of a submission.
type language string

// Languages of the API; only Python runs.
const (
	languagePython language = "python"
	languageCpp    language = "cpp"
	languageMath   language = "math"
)

// submission is one valid program of a request.
type submission struct {
	id       string
	language language
	solution string
	input    string
	expected *string // nil when the output is not compared
}

// seconds is a duration of the API, always written with a fraction, because clients in
// typed languages would read an integer otherwise.
type seconds float64

// MarshalJSON implements json.Marshaler.
func (s seconds) MarshalJSON() ([]byte, error) {
	text := strconv.AppendFloat(nil, float64(s), 'f', -1, 64)
	if !bytes.ContainsRune(text, '.') {
		text = append(text, ".0"...)
	}
	return text, nil
}

// result answers one submission; the streams are nil when no program has run.
type result struct {
	SubID      string  `json:"sub_id"`
	Success    bool    `json:"success"`
	RunSuccess bool    `json:"run_success"`
	Cost       seconds `json:"cost"`
	Stdout     *string `json:"stdout"`
	Stderr     *string `json:"stderr"`
	Reason     reason  `json:"reason"`
}

// verdict is a result without the output.
type verdict struct {
	SubID      string  `json:"sub_id"`
	Success    bool    `json:"success"`
	RunSuccess bool    `json:"run_success"`
	Cost       seconds `json:"cost"`
	Reason     reason  `json:"reason"`
}

// view selects the part of a result that a client gets.
type view func(result) any

func viewRun(r result) any { return r }

func viewJudge(r result) any {
	return verdict{SubID: r.SubID, Success: r.Success, RunSuccess: r.RunSuccess, Cost: r.Cost, Reason: r.Reason}
}

// detail is one error of a request, in the words of the original's framework.
type detail struct {
	Type  string          `json:"type"`
	Loc   []any           `json:"loc"`
	Msg   string          `json:"msg"`
	Input json.RawMessage `json:"input"`
	Ctx   map[string]any  `json:"ctx,omitempty"`
}

// itemDepth is the length of the path to an item of a batch: body, submissions, index.
const itemDepth = 3

// complaints joins the details of one item into one line.
func complaints(details []detail) string {
	var b strings.Builder
	for i, d := range details {
		if i > 0 {
			b.WriteString("; ")
		}
		for _, place := range d.Loc[min(itemDepth, len(d.Loc)):] {
			if name, ok := place.(string); ok {
				b.WriteString(name + ": ")
			}
		}
		b.WriteString(d.Msg)
	}
	return b.String()
}

// streamRunes is the number of characters of each stream that a client gets.
const streamRunes = 1000

// clip returns a copy of the first streamRunes characters, so that a held answer does not
// keep the whole stream in memory.
func clip(s string) *string {
	end := 0
	for range streamRunes {
		if end == len(s) {
			break
		}
		_, size := utf8.DecodeRuneInString(s[end:])
		end += size
	}
	out := strings.Clone(s[:end])
	return &out
}

// suicide is the text that a program of the original prints at its time limit.
const suicide = "Suicide from timeout.\n"

// failed returns the answer for a submission whose program did not run to its end.
func failed(id string, why reason, note string) result {
	r := result{SubID: id, Reason: why}
	if note != "" {
		r.Stderr = clip(note)
	}
	return r
}

// answer translates the result of the program of sub.
func answer(sub submission, res sandbox.Result) result {
	r := result{SubID: sub.id, Cost: seconds(res.Usage.Wall.Seconds())}
	stdout, stderr := res.Stdout, res.Stderr
	switch res.Status {
	case sandbox.StatusOK:
		r.RunSuccess = true
		r.Success = sub.expected == nil || trim(stdout) == trim(*sub.expected)
	case sandbox.StatusError:
	case sandbox.StatusTimeLimit:
		r.Reason = reasonWorkerTime
		stdout += suicide
	case sandbox.StatusMemoryLimit, sandbox.StatusOutputLimit, sandbox.StatusKilled:
		stderr = withNote(stderr, res.Reason)
	case sandbox.StatusRefused:
		return failed(sub.id, reasonInvalidInput, res.Reason)
	case sandbox.StatusInternal:
		return failed(sub.id, reasonInternal, "")
	default:
		return failed(sub.id, reasonInternal, "")
	}
	r.Stdout, r.Stderr = clip(stdout), clip(stderr)
	return r
}

// withNote puts the reason for the end of a program first, so that clip keeps it.
func withNote(stderr, note string) string {
	if note == "" {
		return stderr
	}
	return strings.TrimSuffix(note+"\n"+stderr, "\n") + "\n"
}

// trim removes the white space of the original's language: Unicode's, and the four
// separators of ASCII.
func trim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f
	})
}
