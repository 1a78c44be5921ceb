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

// reason is why a submission has no plain success or failure.
type reason string

// Reasons of the API; there are no others.
const (
	reasonNone         reason = ""
	reasonInternal     reason = "internal_error"
	reasonWorkerTime   reason = "worker_timeout"
	reasonQueueTime    reason = "queue_timeout"
	reasonInvalidInput reason = "invalid_input"
)

// language is the type of a submission.
type language string

// Languages that the API knows; only Python runs.
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
	expected *string // nil when nobody asks what was printed
}

// seconds is a duration of the API, always written with a fraction: clients in
// typed languages read an integer otherwise.
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

// verdict is a result without what was printed.
type verdict struct {
	SubID      string  `json:"sub_id"`
	Success    bool    `json:"success"`
	RunSuccess bool    `json:"run_success"`
	Cost       seconds `json:"cost"`
	Reason     reason  `json:"reason"`
}

// view chooses what of a result a client sees.
type view func(result) any

func viewRun(r result) any { return r }

func viewJudge(r result) any {
	return verdict{SubID: r.SubID, Success: r.Success, RunSuccess: r.RunSuccess, Cost: r.Cost, Reason: r.Reason}
}

// detail is one complaint about a request, as the original's framework words it.
type detail struct {
	Type  string          `json:"type"`
	Loc   []any           `json:"loc"`
	Msg   string          `json:"msg"`
	Input json.RawMessage `json:"input"`
	Ctx   map[string]any  `json:"ctx,omitempty"`
}

// itemDepth is how deep an item of a batch is: body, submissions, its number.
const itemDepth = 3

// complaints joins the details about one item into one line.
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

// streamRunes is how much of each stream a client sees.
const streamRunes = 1000

// clip returns the first streamRunes characters in memory of their own, so that
// a held answer does not hold the whole stream.
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

// suicide is what a program of the original prints when its time is over.
const suicide = "Suicide from timeout.\n"

// failed answers a submission whose program did not run to an end.
func failed(id string, why reason, note string) result {
	r := result{SubID: id, Reason: why}
	if note != "" {
		r.Stderr = clip(note)
	}
	return r
}

// answer translates what became of the program of sub.
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

// withNote puts why a program was ended first, where clip does not lose it.
func withNote(stderr, note string) string {
	if note == "" {
		return stderr
	}
	return strings.TrimSuffix(note+"\n"+stderr, "\n") + "\n"
}

// trim removes what the original's language takes for white space: Unicode's,
// and the four separators of ASCII.
func trim(s string) string {
	return strings.TrimFunc(s, func(r rune) bool {
		return unicode.IsSpace(r) || 0x1c <= r && r <= 0x1f
	})
}
