//go:build goexperiment.simd && amd64

package kernels

import "temper/trainer/gomlxhooks"

// tested is an attention with and without tables.
type tested struct{ inner, tables attentionFunc }

// testedTables are the kernels of this CPU.
func testedTables() map[string]tested {
	out := map[string]tested{}
	if v := nativeVariant(); v == AVX512 || v == AVX2 {
		out["avx2"] = tested{gomlxhooks.AttentionAVX2, withTables(gomlxhooks.AttentionAVX2, attend8, blocksOf(AVX2))}
		out["copied"] = tested{gomlxhooks.AttentionAVX2, withTables(gomlxhooks.AttentionAVX2, nil, blocksOf(AVX2))}
	}
	if nativeVariant() == AVX512 {
		out["native"] = tested{tables, tables} // rows pass through
	}
	return out
}
