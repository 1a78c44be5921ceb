package rl

import (
	"hash/fnv"
	"math/rand/v2"
)

// Seed derives the seed of one draw from the run's seed and the path of the
// draw, for example Seed(run, "rollout", step, problemHash, i). Equal paths
// give equal seeds; the order in which draws happen does not matter.
func Seed(run uint64, purpose string, path ...uint64) uint64 {
	h := mix(run ^ Hash(purpose))
	for _, p := range path {
		h = mix(h ^ mix(p+0x9e3779b97f4a7c15))
	}
	return h
}

// Hash turns a name into a path element for Seed (64-bit FNV-1a).
func Hash(name string) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(name)) // hash.Hash never returns an error
	return h.Sum64()
}

// Rand returns a generator over the given seed.
func Rand(seed uint64) *rand.Rand {
	return rand.New(rand.NewPCG(seed, mix(seed)))
}

// Uniform returns the draw in [0, 1) that selects the token at absolute
// position pos of the trajectory with the given seed. It has 24 bits so that
// it is exact in float32, and it does not depend on batch composition.
func Uniform(seed uint64, pos int) float32 {
	return float32(mix(seed^mix(uint64(pos)+0x9e3779b97f4a7c15))>>40) / (1 << 24)
}

// mix is the finalizer of SplitMix64 (Steele, Lea, Flood 2014).
func mix(z uint64) uint64 {
	z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9
	z = (z ^ (z >> 27)) * 0x94d049bb133111eb
	return z ^ (z >> 31)
}
