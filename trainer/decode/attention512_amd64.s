//go:build goexperiment.simd && amd64

#include "textflag.h"

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
#define QUARTER(j, next, end, next2, end2, whole) \
	LEAQ (4*j)(SI), R9 \
	LEAQ (64*j)(DI), R10 \
	CHAIN(next, end) \
	CMPQ R11, R12 \
	JEQ whole \
	VMOVAPS Z0, Z4 \
	VMOVAPS Z1, Z5 \
	VMOVAPS Z2, Z6 \
	VMOVAPS Z3, Z7 \
	CHAIN(next2, end2) \
	VADDPS Z0, Z4, Z0 \
	VADDPS Z1, Z5, Z1 \
	VADDPS Z2, Z6, Z2 \
	VADDPS Z3, Z7, Z3 \
whole: \
	VADDPS Z1, Z0, Z0 \
	VADDPS Z3, Z2, Z2 \
	VADDPS Z2, Z0, Z0

// func dots512(query, keys, out unsafe.Pointer, e, chain int, scale float32)
TEXT ·dots512(SB), NOSPLIT, $0-44
	MOVQ query+0(FP), SI
	MOVQ keys+8(FP), DI
	MOVQ out+16(FP), BX
	MOVQ e+24(FP), R12
	SHRQ $4, R12
	MOVQ chain+32(FP), R11
	SHRQ $4, R11
	QUARTER(0, a0, a1, a2, a3, a4)
	VMOVAPS Z0, Z14
	QUARTER(1, b0, b1, b2, b3, b4)
	VADDPS Z0, Z14, Z14
	QUARTER(2, c0, c1, c2, c3, c4)
	VMOVAPS Z0, Z12
	QUARTER(3, d0, d1, d2, d3, d4)
	VADDPS Z0, Z12, Z12
	VADDPS Z12, Z14, Z14
	VBROADCASTSS scale+40(FP), Z0
	VMULPS Z0, Z14, Z14
	VMOVUPS Z14, (BX)
	VZEROUPPER
	RET
