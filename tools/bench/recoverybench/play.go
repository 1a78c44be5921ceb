package recoverybench

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"hash"
	"math"
	"strings"

	"temper/internal/blob"
	"temper/internal/rl"
	"temper/trainer/checkpoint"
)

// play carries out a run and returns what identifies it: a hash of all that the
// policy wrote and of the last policy.
func (b *branch) play(ctx context.Context, p Plan, how Recovery, h hazard, all, last *tally) (string, error) {
	print := sha256.New()
	for step := 1; step <= p.Steps; step++ {
		s, err := b.sample(ctx, step, how, h)
		if err != nil {
			return "", err
		}
		all.add(s)
		if step > p.Steps-max(1, p.Steps/4) {
			last.add(s)
		}
		for _, id := range s.problems {
			for i := range s.groups[id].trajectories {
				addPrint(print, &s.groups[id].trajectories[i])
			}
		}
		if !p.Train {
			continue
		}
		if err := b.train(ctx, step, s); err != nil {
			return "", err
		}
	}
	if err := addWeights(ctx, print, b.Store, b.policy.Ref); err != nil {
		return "", err
	}
	return hex.EncodeToString(print.Sum(nil)), nil
}

// addPrint adds the tokens of a trajectory and their log-probabilities.
func addPrint(print hash.Hash, t *rl.Trajectory) {
	var buf []byte
	for i, token := range t.Tokens {
		buf = binary.LittleEndian.AppendUint32(buf, uint32(token))
		buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(t.RolloutLogprobs[i]))
	}
	print.Write(buf)
}

// addWeights adds the weights of a policy.
func addWeights(ctx context.Context, print hash.Hash, store blob.Store, ref blob.Ref) error {
	p, err := checkpoint.LoadWeights(ctx, store, ref)
	if err != nil {
		return err
	}
	for _, t := range p.Weights {
		var buf []byte
		for _, v := range t.Data {
			buf = binary.LittleEndian.AppendUint32(buf, math.Float32bits(v))
		}
		print.Write(buf)
	}
	return nil
}

// compact writes a recovery as a part of a run id.
func compact(how Recovery) string { return strings.ReplaceAll(string(how), " ", "-") }
