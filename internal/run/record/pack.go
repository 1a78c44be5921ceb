package record

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"

	"temper/internal/rl"
	"temper/sandbox/status"
)

// Packed is a trajectory in the little memory that it takes until its group is
// complete: some 7 bytes a token, with the arrays cut into planes of equal bytes, which
// compress better than numbers. It has no Text and nothing that clocks say.
type Packed struct {
	ProblemID string
	Rollout   int
	head      []byte
	shape     shape
	prompt    int // tokens of it
	// planes hold the lowest byte of every token, then the next one, and so on; then the
	// same of the log-probabilities.
	planes [numPlanes][]byte
}

// shape tells how long the planes of a trajectory are.
type shape struct {
	tokens     int
	tokenBytes int // of each token, 1 to 4
	logprobs   int
}

const logprobBytes = 4

// Tokens is the number of tokens with the prompt.
func (p *Packed) Tokens() int { return p.shape.tokens }

// Size is the memory that it takes.
func (p *Packed) Size() int {
	return len(p.head) + p.shape.tokens*p.shape.tokenBytes + p.shape.logprobs*logprobBytes
}

// Pack makes the packed form. The lengths of a trajectory's arrays must be equal.
func Pack(t *rl.Trajectory) (Packed, error) {
	if err := t.Validate(); err != nil {
		return Packed{}, err
	}
	s := shape{tokens: len(t.Tokens), tokenBytes: 1}
	var all uint32
	for _, id := range t.Tokens {
		all |= uint32(id) //nolint:gosec // Unpack undoes it
	}
	for s.tokenBytes < 4 && all>>(8*s.tokenBytes) != 0 {
		s.tokenBytes++
	}
	sampled := onlySampled(t)
	if s.logprobs = s.tokens; sampled {
		s.logprobs = 0
		for _, in := range t.LossMask {
			if in {
				s.logprobs++
			}
		}
	}
	p := Packed{ProblemID: t.ProblemID, Rollout: t.Rollout, shape: s, prompt: t.PromptTokens, head: appendHead(nil, t, s)}
	memory := make([]byte, p.Size()-len(p.head))
	for i := range p.planes {
		n := s.length(i)
		p.planes[i], memory = memory[:n:n], memory[n:]
	}
	for b, plane := range p.planes[:s.tokenBytes] {
		for i, id := range t.Tokens[:len(plane)] {
			plane[i] = byte(uint32(id) >> (8 * b)) //nolint:gosec // one byte of it
		}
	}
	splitLogprobs(p.planes[tokenPlanes:], t, sampled)
	return p, nil
}

// onlySampled reports whether the log-probabilities of all tokens that were not sampled are
// exactly 0, as they should be.
func onlySampled(t *rl.Trajectory) bool {
	for i, in := range t.LossMask {
		if !in && math.Float32bits(t.RolloutLogprobs[i]) != 0 {
			return false
		}
	}
	return true
}

func splitLogprobs(planes [][]byte, t *rl.Trajectory, sampled bool) {
	p0, p1, p2, p3 := planes[0], planes[1], planes[2], planes[3]
	at := 0
	for i, in := range t.LossMask {
		if sampled && !in {
			continue
		}
		bits := math.Float32bits(t.RolloutLogprobs[i])
		p0[at], p1[at], p2[at], p3[at] = byte(bits), byte(bits>>8), byte(bits>>16), byte(bits>>24) //nolint:gosec // bytes of it
		at++
	}
}

// Unpack makes the trajectory again, without its Text.
func (p *Packed) Unpack() (rl.Trajectory, error) {
	t, err := p.UnpackTokens()
	if err != nil {
		return t, err
	}
	if s := p.shape; s.tokens > 0 {
		if len(p.planes[tokenPlanes]) != s.logprobs {
			return t, fmt.Errorf("trajectory %s was read without its log-probabilities", p.describe())
		}
		joinLogprobs(&t, p.planes[tokenPlanes:], s.logprobs < s.tokens)
	}
	return t, t.Validate()
}

// UnpackTokens is Unpack without log-probabilities.
func (p *Packed) UnpackTokens() (rl.Trajectory, error) {
	r := reader{data: p.head}
	var t rl.Trajectory
	r.head(&t, p.shape)
	if r.err == nil && len(r.data) > 0 {
		r.err = errHead
	}
	if r.err != nil || p.shape.tokens == 0 {
		return t, r.err
	}
	t.Tokens = p.appendTokens(nil, 0)
	return t, nil
}

// AppendResponse appends the tokens behind the prompt.
func (p *Packed) AppendResponse(dst []int32) []int32 { return p.appendTokens(dst, p.prompt) }

// appendTokens appends the tokens from one on.
func (p *Packed) appendTokens(dst []int32, from int) []int32 {
	n := len(dst)
	dst = slices.Grow(dst, p.shape.tokens-from)[:n+p.shape.tokens-from]
	out := dst[n:]
	p0, p1 := p.planes[0][from:], p.planes[1]
	if p.shape.tokenBytes < 2 { // of a small vocabulary
		for i := range out {
			out[i] = int32(p0[i])
		}
		return dst
	}
	p0, p1 = p0[:len(out)], p1[from:][:len(out)]
	for i := range out {
		out[i] = int32(p0[i]) | int32(p1[i])<<8
	}
	for b := 2; b < p.shape.tokenBytes; b++ {
		plane := p.planes[b][from:][:len(out)]
		for i := range out {
			out[i] |= int32(plane[i]) << (8 * b)
		}
	}
	return dst
}

func joinLogprobs(t *rl.Trajectory, planes [][]byte, sampled bool) {
	p0, p1, p2, p3 := planes[0], planes[1], planes[2], planes[3]
	t.RolloutLogprobs = make([]float32, len(t.LossMask))
	at := 0
	for i, in := range t.LossMask {
		if sampled && !in {
			continue
		}
		t.RolloutLogprobs[i] = math.Float32frombits(uint32(p0[at]) | uint32(p1[at])<<8 | uint32(p2[at])<<16 | uint32(p3[at])<<24)
		at++
	}
}

var errHead = errors.New("compact record: the head of a trajectory is damaged")

// appendHead writes all but the arrays. A new field of rl.Trajectory gets its place
// here and in reader.head, and a new magic where old records lack it.
func appendHead(b []byte, t *rl.Trajectory, s shape) []byte {
	b = appendInts(b, s.tokens, s.tokenBytes, s.logprobs)
	b = appendText(b, t.ProblemID)
	b = appendInts(b, t.Rollout, t.Stage, t.Step, int(t.PolicyVersion), t.PromptTokens)
	b = binary.LittleEndian.AppendUint64(b, t.Seed)
	b = binary.LittleEndian.AppendUint64(b, math.Float64bits(t.Reward))
	b = appendInts(b, t.AnswerTags)
	for _, text := range []string{string(t.StopReason), t.Answer, t.Details, t.Err} {
		b = appendText(b, text)
	}
	b = appendRuns(b, t.LossMask)
	b = appendInts(b, len(t.Spans)) // none is all by PolicyVersion
	for _, s := range t.Spans {
		b = appendInts(b, s.From, int(s.Version))
	}
	b = appendInts(b, len(t.Turns))
	for i := range t.Turns {
		turn := &t.Turns[i]
		b = appendInts(b, turn.Start, turn.End)
		b = appendText(b, string(turn.Finish))
		b = appendInts(b, len(turn.Calls))
		for _, c := range turn.Calls {
			for _, text := range []string{c.ID, c.Name, c.Arguments, string(c.Status), c.Response} {
				b = appendText(b, text)
			}
		}
	}
	return b
}

func appendInts(b []byte, values ...int) []byte {
	for _, v := range values {
		b = binary.AppendVarint(b, int64(v))
	}
	return b
}

func appendText(b []byte, s string) []byte {
	return append(binary.AppendUvarint(b, uint64(len(s))), s...)
}

// appendRuns writes a mask as the lengths of its runs, of which the first is false.
func appendRuns(b []byte, mask []bool) []byte {
	var runs []int
	last, from := false, 0
	for i, in := range mask {
		if in != last {
			runs, last, from = append(runs, i-from), in, i
		}
	}
	runs = append(runs, len(mask)-from)
	return appendInts(appendInts(b, len(runs)), runs...)
}

// reader reads a head. Its first error stays.
type reader struct {
	data []byte
	err  error
}

func (r *reader) shape() (s shape) {
	s.tokens, s.tokenBytes, s.logprobs = r.int(), r.int(), r.int()
	if s.tokens < 0 || s.tokens > maxTokens || s.tokenBytes < 1 || s.tokenBytes > 4 || s.logprobs < 0 || s.logprobs > s.tokens {
		r.fail()
	}
	return s
}

// prompt reads how many of the tokens are the prompt.
func (r *reader) prompt(s shape) int {
	n := r.int()
	if n < 0 || n > s.tokens {
		r.fail()
		return 0
	}
	return n
}

// maxTokens bounds what a damaged head may make a reader allocate.
const maxTokens = 1 << 26

func (r *reader) head(t *rl.Trajectory, want shape) {
	if r.shape() != want {
		r.fail()
	}
	t.ProblemID = r.text()
	t.Rollout, t.Stage, t.Step, t.PolicyVersion, t.PromptTokens = r.int(), r.int(), r.int(), int64(r.int()), r.prompt(want)
	t.Seed, t.Reward = r.uint64(), math.Float64frombits(r.uint64())
	t.AnswerTags = r.int()
	t.StopReason, t.Answer, t.Details, t.Err = rl.StopReason(r.text()), r.text(), r.text(), r.text()
	t.LossMask = r.runs(want)
	for range r.count(2) {
		t.Spans = append(t.Spans, rl.Span{From: r.int(), Version: int64(r.int())})
	}
	for range r.count(3) {
		turn := rl.Turn{Start: r.int(), End: r.int(), Finish: rl.FinishReason(r.text())}
		for range r.count(5) {
			turn.Calls = append(turn.Calls, rl.ToolCall{
				ID: r.text(), Name: r.text(), Arguments: r.text(),
				Status: status.Status(r.text()), Response: r.text(),
			})
		}
		t.Turns = append(t.Turns, turn)
	}
}

func (r *reader) fail() {
	if r.err == nil {
		r.err = errHead
	}
	r.data = nil
}

func (r *reader) int() int {
	v, n := binary.Varint(r.data)
	if n <= 0 {
		r.fail()
		return 0
	}
	r.data = r.data[n:]
	return int(v)
}

// count reads how many things follow, each of at least so many bytes.
func (r *reader) count(least int) int {
	n := r.int()
	if n < 0 || n > len(r.data)/least {
		r.fail()
		return 0
	}
	return n
}

func (r *reader) uint64() uint64 {
	if len(r.data) < 8 {
		r.fail()
		return 0
	}
	v := binary.LittleEndian.Uint64(r.data)
	r.data = r.data[8:]
	return v
}

func (r *reader) text() string {
	size, n := binary.Uvarint(r.data)
	if n <= 0 || size > uint64(len(r.data)-n) {
		r.fail()
		return ""
	}
	s := string(r.data[n:][:size])
	r.data = r.data[n+int(size):] //nolint:gosec // within the data
	return s
}

// runs reads a mask. It must have so many tokens, and so many of them sampled.
func (r *reader) runs(want shape) []bool {
	var mask []bool
	if want.tokens > 0 {
		mask = make([]bool, 0, want.tokens)
	}
	in, sampled := false, 0
	for range r.count(1) {
		n := r.int()
		if n < 0 || n > want.tokens-len(mask) {
			r.fail()
			return nil
		}
		from := len(mask)
		mask = mask[:from+n]
		if in {
			sampled += n
			for i := range mask[from:] {
				mask[from+i] = true
			}
		}
		in = !in
	}
	if len(mask) != want.tokens || want.logprobs != want.tokens && want.logprobs != sampled {
		r.fail()
		return nil
	}
	return mask
}

// describe names the trajectory in an error.
func (p *Packed) describe() string { return fmt.Sprintf("%s/%d", p.ProblemID, p.Rollout) }
