package gomlxhooks

import (
	"unsafe"

	_ "github.com/gomlx/compute/gobackend" // owns the variable below and sets it when the process starts
)

// Attention is gobackend.SDPAFloat32ArchFn: attention of the query heads that share one
// head of keys and values. It reports false when it did not compute.
type Attention = func(q, k, v, output []float32, qOff, kvOff, qSeqStride, kvSeqStride, qGroupStride int,
	additiveMask []float32, booleanMask []bool, maskGroupStride int, additiveBias []float32, biasGroupStride int,
	scores []float32, groupSize, seqLen, kvLen, headDim int, scale float32, causal bool, qLimit, kvLimit int) bool

// compute v0.1.14, internal/gobackend/sdpa_arch.go: var sdpaFloat32ArchFn SDPAFloat32ArchFn.
// A value of a func type is one pointer.
//
//go:linkname attention github.com/gomlx/compute/internal/gobackend.sdpaFloat32ArchFn
var attention unsafe.Pointer

// AttentionKernel returns the attention that the Go backend calls, nil for none.
func AttentionKernel() Attention { return *(*Attention)(unsafe.Pointer(&attention)) }

// SetAttentionKernel makes the Go backend call f. No graph may be executing.
func SetAttentionKernel(f Attention) { attention = *(*unsafe.Pointer)(unsafe.Pointer(&f)) }
