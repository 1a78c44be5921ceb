package rl

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
)

// The stored form of samples: a first line that names the form, then for each sample a line
// of JSON and its arrays, little-endian: tokens as uint32, the loss mask in bits from the
// lowest one on, log-probabilities of the tokens in the loss as IEEE 754 float32. It takes
// about 6 bytes a token, and a reader parses no text per token.

const (
	samplesMagic = "temper samples 1\n"
	// maxSampleTokens bounds the memory that a header makes a reader allocate.
	maxSampleTokens = 1 << 24
	maxSampleHeader = 1 << 16 // bytes
)

// sampleHeader is a Sample without its arrays.
type sampleHeader struct {
	ProblemID string  `json:"problem_id"`
	Rollout   int     `json:"rollout"`
	Advantage float32 `json:"advantage"`
	Truncated bool    `json:"truncated,omitempty"`
	Tokens    int     `json:"tokens"`
}

// WriteSamples writes samples in their stored form. Equal samples give equal bytes. It
// returns errors of w, and refuses a sample whose arrays differ in length.
func WriteSamples(w io.Writer, samples []Sample) error {
	buf := []byte(samplesMagic)
	for i := range samples {
		var err error
		if buf, err = samples[i].append(buf); err != nil {
			return err
		}
		if _, err := w.Write(buf); err != nil {
			return err
		}
		buf = buf[:0]
	}
	_, err := w.Write(buf)
	return err
}

func (s *Sample) append(buf []byte) ([]byte, error) {
	n := len(s.Tokens)
	if len(s.LossMask) != n || len(s.RolloutLogprobs) != n {
		return buf, fmt.Errorf("sample %s/%d: %d tokens, %d mask, %d logprobs: lengths differ", s.ProblemID, s.Rollout, n, len(s.LossMask), len(s.RolloutLogprobs))
	}
	head, err := json.Marshal(sampleHeader{ProblemID: s.ProblemID, Rollout: s.Rollout, Advantage: s.Advantage, Truncated: s.Truncated, Tokens: n})
	if err != nil {
		return buf, fmt.Errorf("sample %s/%d: %w", s.ProblemID, s.Rollout, err)
	}
	buf = append(append(buf, head...), '\n')
	for _, t := range s.Tokens {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(t)) //nolint:gosec // the reader undoes it
	}
	for i := 0; i < n; i += 8 {
		var bits byte
		for j := i; j < min(i+8, n); j++ {
			if s.LossMask[j] {
				bits |= 1 << (j - i)
			}
		}
		buf = append(buf, bits)
	}
	for i, logprob := range s.RolloutLogprobs {
		switch {
		case s.LossMask[i]:
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(logprob))
		case logprob != 0:
			return buf, fmt.Errorf("sample %s/%d: token %d is not in the loss and has log-probability %v", s.ProblemID, s.Rollout, i, logprob)
		}
	}
	return buf, nil
}

// ReadSamples reads what WriteSamples wrote.
func ReadSamples(r io.Reader) ([]Sample, error) {
	in := bufio.NewReaderSize(r, maxSampleHeader)
	magic := make([]byte, len(samplesMagic))
	if _, err := io.ReadFull(in, magic); err != nil || string(magic) != samplesMagic {
		return nil, fmt.Errorf("samples: want a first line %q", samplesMagic)
	}
	var out []Sample
	for {
		line, err := in.ReadSlice('\n')
		if errors.Is(err, io.EOF) && len(line) == 0 {
			return out, nil
		}
		var head sampleHeader
		if err == nil {
			err = json.Unmarshal(line, &head)
		}
		if err == nil && (head.Tokens < 0 || head.Tokens > maxSampleTokens) {
			err = fmt.Errorf("%d tokens, want at most %d", head.Tokens, maxSampleTokens)
		}
		var s Sample
		if err == nil {
			s, err = head.read(in)
		}
		if err != nil {
			return nil, fmt.Errorf("samples: sample %d: %w", len(out)+1, err)
		}
		out = append(out, s)
	}
}

// read reads the arrays after a header.
func (h sampleHeader) read(in io.Reader) (Sample, error) {
	n := h.Tokens
	s := Sample{ProblemID: h.ProblemID, Rollout: h.Rollout, Advantage: h.Advantage, Truncated: h.Truncated}
	tokens, err := readBytes(in, 4*n)
	if err != nil {
		return s, err
	}
	bits, err := readBytes(in, (n+7)/8)
	if err != nil {
		return s, err
	}
	s.Tokens, s.LossMask, s.RolloutLogprobs = make([]int32, n), make([]bool, n), make([]float32, n)
	inLoss := 0
	for i := range n {
		s.Tokens[i] = int32(binary.LittleEndian.Uint32(tokens[4*i:])) //nolint:gosec // undoes append
		if s.LossMask[i] = bits[i/8]&(1<<(i%8)) != 0; s.LossMask[i] {
			inLoss++
		}
	}
	logprobs, err := readBytes(in, 4*inLoss)
	if err != nil {
		return s, err
	}
	for i := range n {
		if s.LossMask[i] {
			s.RolloutLogprobs[i] = math.Float32frombits(binary.LittleEndian.Uint32(logprobs))
			logprobs = logprobs[4:]
		}
	}
	return s, nil
}

// readBytes reads n bytes. It allocates no more than the input holds, so that a forged
// header costs nothing.
func readBytes(in io.Reader, n int) ([]byte, error) {
	out, err := io.ReadAll(io.LimitReader(in, int64(n)))
	if err == nil && len(out) < n {
		err = io.ErrUnexpectedEOF
	}
	return out, err
}
