//go:build goexperiment.simd && amd64

#include "textflag.h"

// func scoresE(q, keys, out unsafe.Pointer, groups int, scale float32)
// computes the products of a query of E dimensions with 16 keys a group: keys [groups, E,
// 16], out [groups, 16]. Lane j of the backend's vectors has the terms of dimensions j,
// j+16 and so on; of 128 dimensions it has those of each half first. The lanes are added
// as halves, twice, then neighbors, then the rest.

#define FIRST(d, t) \
	VBROADCASTSS (4*d)(SI), Z31 \
	VMULPS (64*d)(DI), Z31, t

#define NEXT(d, t) \
	VBROADCASTSS (4*d)(SI), Z31 \
	VMULPS (64*d)(DI), Z31, Z30 \
	VADDPS Z30, t, t

#define LANE32(j, t) \
	FIRST(j, t) \
	NEXT((j+16), t)

#define LANE64(j, t) \
	LANE32(j, t) \
	NEXT((j+32), t) \
	NEXT((j+48), t)

#define LANE128(j, t) \
	LANE64(j, t) \
	FIRST((j+64), Z29) \
	NEXT((j+80), Z29) \
	NEXT((j+96), Z29) \
	NEXT((j+112), Z29) \
	VADDPS Z29, t, t

TEXT ·scores32(SB), NOSPLIT, $0-36
	MOVQ q+0(FP), SI
	MOVQ keys+8(FP), DI
	MOVQ out+16(FP), BX
	MOVQ groups+24(FP), CX
	VBROADCASTSS scale+32(FP), Z28
loop:
	LANE32(0, Z0)
	LANE32(8, Z4)
	VADDPS Z4, Z0, Z0
	LANE32(4, Z5)
	LANE32(12, Z6)
	VADDPS Z6, Z5, Z5
	VADDPS Z5, Z0, Z0
	LANE32(1, Z1)
	LANE32(9, Z4)
	VADDPS Z4, Z1, Z1
	LANE32(5, Z5)
	LANE32(13, Z6)
	VADDPS Z6, Z5, Z5
	VADDPS Z5, Z1, Z1
	LANE32(2, Z2)
	LANE32(10, Z4)
	VADDPS Z4, Z2, Z2
	LANE32(6, Z5)
	LANE32(14, Z6)
	VADDPS Z6, Z5, Z5
	VADDPS Z5, Z2, Z2
	LANE32(3, Z3)
	LANE32(11, Z4)
	VADDPS Z4, Z3, Z3
	LANE32(7, Z5)
	LANE32(15, Z6)
	VADDPS Z6, Z5, Z5
	VADDPS Z5, Z3, Z3
	VADDPS Z1, Z0, Z0
	VADDPS Z3, Z2, Z2
	VADDPS Z2, Z0, Z0
	VMULPS Z28, Z0, Z0
	VMOVUPS Z0, (BX)
	ADDQ $2048, DI
	ADDQ $64, BX
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET

TEXT ·scores64(SB), NOSPLIT, $0-36
	MOVQ q+0(FP), SI
	MOVQ keys+8(FP), DI
	MOVQ out+16(FP), BX
	MOVQ groups+24(FP), CX
	VBROADCASTSS scale+32(FP), Z28
loop:
	LANE64(0, Z0)
	LANE64(8, Z4)
	VADDPS Z4, Z0, Z0
	LANE64(4, Z5)
	LANE64(12, Z6)
	VADDPS Z6, Z5, Z5
	VADDPS Z5, Z0, Z0
	LANE64(1, Z1)
	LANE64(9, Z4)
	VADDPS Z4, Z1, Z1
	LANE64(5, Z5)
	LANE64(13, Z6)
	VADDPS Z6, Z5, Z5
	VADDPS Z5, Z1, Z1
	LANE64(2, Z2)
	LANE64(10, Z4)
	VADDPS Z4, Z2, Z2
	LANE64(6, Z5)
	LANE64(14, Z6)
	VADDPS Z6, Z5, Z5
	VADDPS Z5, Z2, Z2
	LANE64(3, Z3)
	LANE64(11, Z4)
	VADDPS Z4, Z3, Z3
	LANE64(7, Z5)
	LANE64(15, Z6)
	VADDPS Z6, Z5, Z5
	VADDPS Z5, Z3, Z3
	VADDPS Z1, Z0, Z0
	VADDPS Z3, Z2, Z2
	VADDPS Z2, Z0, Z0
	VMULPS Z28, Z0, Z0
	VMOVUPS Z0, (BX)
	ADDQ $4096, DI
	ADDQ $64, BX
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET

TEXT ·scores128(SB), NOSPLIT, $0-36
	MOVQ q+0(FP), SI
	MOVQ keys+8(FP), DI
	MOVQ out+16(FP), BX
	MOVQ groups+24(FP), CX
	VBROADCASTSS scale+32(FP), Z28
loop:
	LANE128(0, Z0)
	LANE128(8, Z4)
	VADDPS Z4, Z0, Z0
	LANE128(4, Z5)
	LANE128(12, Z6)
	VADDPS Z6, Z5, Z5
	VADDPS Z5, Z0, Z0
	LANE128(1, Z1)
	LANE128(9, Z4)
	VADDPS Z4, Z1, Z1
	LANE128(5, Z5)
	LANE128(13, Z6)
	VADDPS Z6, Z5, Z5
	VADDPS Z5, Z1, Z1
	LANE128(2, Z2)
	LANE128(10, Z4)
	VADDPS Z4, Z2, Z2
	LANE128(6, Z5)
	LANE128(14, Z6)
	VADDPS Z6, Z5, Z5
	VADDPS Z5, Z2, Z2
	LANE128(3, Z3)
	LANE128(11, Z4)
	VADDPS Z4, Z3, Z3
	LANE128(7, Z5)
	LANE128(15, Z6)
	VADDPS Z6, Z5, Z5
	VADDPS Z5, Z3, Z3
	VADDPS Z1, Z0, Z0
	VADDPS Z3, Z2, Z2
	VADDPS Z2, Z0, Z0
	VMULPS Z28, Z0, Z0
	VMOVUPS Z0, (BX)
	ADDQ $8192, DI
	ADDQ $64, BX
	DECQ CX
	JNZ loop
	VZEROUPPER
	RET

// CHAIN adds the terms of lanes j, j+8, j+4 and j+12 of a chain, for 16 keys each: Z0 to
// Z3. R11 is the number of terms; R9, in the query, and R10, in the keys, are at the first
// and move on.
#define CHAIN(next, end) \
	VBROADCASTSS (R9), Z8 \
	VMULPS (R10), Z8, Z0 \
	VBROADCASTSS 32(R9), Z9 \
	VMULPS 512(R10), Z9, Z1 \
	VBROADCASTSS 16(R9), Z10 \
	VMULPS 256(R10), Z10, Z2 \
	VBROADCASTSS 48(R9), Z11 \
	VMULPS 768(R10), Z11, Z3 \
	ADDQ $64, R9 \
	ADDQ $1024, R10 \
	MOVQ R11, CX \
	DECQ CX \
	JZ end \
next: \
	VBROADCASTSS (R9), Z8 \
	VMULPS (R10), Z8, Z8 \
	VADDPS Z8, Z0, Z0 \
	VBROADCASTSS 32(R9), Z9 \
	VMULPS 512(R10), Z9, Z9 \
	VADDPS Z9, Z1, Z1 \
	VBROADCASTSS 16(R9), Z10 \
	VMULPS 256(R10), Z10, Z10 \
	VADDPS Z10, Z2, Z2 \
	VBROADCASTSS 48(R9), Z11 \
	VMULPS 768(R10), Z11, Z11 \
	VADDPS Z11, Z3, Z3 \
	ADDQ $64, R9 \
	ADDQ $1024, R10 \
	DECQ CX \
	JNZ next \
end:

// QUARTER adds lanes j, j+4, j+8 and j+12 of 16 keys up: Z0.
#define QUARTER(j, next, end) \
	LEAQ (4*j)(SI), R9 \
	LEAQ (64*j)(DI), R10 \
	CHAIN(next, end) \
	VADDPS Z1, Z0, Z0 \
	VADDPS Z3, Z2, Z2 \
	VADDPS Z2, Z0, Z0

// func dots512(query, keys, out unsafe.Pointer, chunks int, scale float32)
// is for one group and any number of dimensions: so many times 16.
TEXT ·dots512(SB), NOSPLIT, $0-36
	MOVQ query+0(FP), SI
	MOVQ keys+8(FP), DI
	MOVQ out+16(FP), BX
	MOVQ chunks+24(FP), R11
	QUARTER(0, a0, a1)
	VMOVAPS Z0, Z14
	QUARTER(1, b0, b1)
	VADDPS Z0, Z14, Z14
	QUARTER(2, c0, c1)
	VMOVAPS Z0, Z12
	QUARTER(3, d0, d1)
	VADDPS Z0, Z12, Z12
	VADDPS Z12, Z14, Z14
	VBROADCASTSS scale+32(FP), Z0
	VMULPS Z0, Z14, Z14
	VMOVUPS Z14, (BX)
	VZEROUPPER
	RET
