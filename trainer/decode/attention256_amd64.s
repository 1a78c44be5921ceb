//go:build goexperiment.simd && amd64

#include "textflag.h"

#define MIXARGS \
	MOVQ weightsA+0(FP), SI \
	MOVQ weightsB+8(FP), DI \
	MOVQ valuesA+16(FP), R8 \
	MOVQ valuesB+24(FP), R9 \
	MOVQ outA+32(FP), R10 \
	MOVQ outB+40(FP), R11 \
	MOVQ stride+48(FP), DX \
	MOVQ tokens+56(FP), CX

#define NEXTTOKEN \
	ADDQ $4, SI \
	ADDQ $4, DI \
	ADDQ DX, R8 \
	ADDQ DX, R9 \
	DECQ CX

// PRODUCT multiplies two dimensions, j and j+4, of the query with those of 16 keys: into
// a, b and c, d.
#define PRODUCT(a, b, c, d) \
	VBROADCASTSS (R9), Y8 \
	VMULPS (R10), Y8, a \
	VMULPS 32(R10), Y8, b \
	VBROADCASTSS 16(R9), Y9 \
	VMULPS 256(R10), Y9, c \
	VMULPS 288(R10), Y9, d \
	ADDQ $32, R9 \
	ADDQ $512, R10

// CHAIN adds the terms of lanes j and j+4 of a chain: Y0, Y1 and Y2, Y3. R11 is the number
// of terms, R9 and R10 are at the first and move on.
#define CHAIN(next, end) \
	PRODUCT(Y0, Y1, Y2, Y3) \
	MOVQ R11, CX \
	DECQ CX \
	JZ end \
next: \
	VBROADCASTSS (R9), Y8 \
	VMULPS (R10), Y8, Y4 \
	VADDPS Y4, Y0, Y0 \
	VMULPS 32(R10), Y8, Y5 \
	VADDPS Y5, Y1, Y1 \
	VBROADCASTSS 16(R9), Y9 \
	VMULPS 256(R10), Y9, Y4 \
	VADDPS Y4, Y2, Y2 \
	VMULPS 288(R10), Y9, Y5 \
	VADDPS Y5, Y3, Y3 \
	ADDQ $32, R9 \
	ADDQ $512, R10 \
	DECQ CX \
	JNZ next \
end:

// LANES adds lanes j and j+4 of 16 keys up: Y0, Y1.
#define LANES(j, next, end, next2, end2, whole) \
	LEAQ (4*j)(SI), R9 \
	LEAQ (64*j)(DI), R10 \
	CHAIN(next, end) \
	CMPQ R11, R12 \
	JEQ whole \
	VMOVAPS Y0, Y6 \
	VMOVAPS Y1, Y7 \
	VMOVAPS Y2, Y10 \
	VMOVAPS Y3, Y11 \
	CHAIN(next2, end2) \
	VADDPS Y0, Y6, Y0 \
	VADDPS Y1, Y7, Y1 \
	VADDPS Y2, Y10, Y2 \
	VADDPS Y3, Y11, Y3 \
whole: \
	VADDPS Y2, Y0, Y0 \
	VADDPS Y3, Y1, Y1

// func dots256(query, keys, out unsafe.Pointer, e, chain int, scale float32)
TEXT ·dots256(SB), NOSPLIT, $0-44
	MOVQ query+0(FP), SI
	MOVQ keys+8(FP), DI
	MOVQ out+16(FP), BX
	MOVQ e+24(FP), R12
	SHRQ $3, R12
	MOVQ chain+32(FP), R11
	SHRQ $3, R11
	LANES(0, a0, a1, a2, a3, a4)
	VMOVAPS Y0, Y14
	VMOVAPS Y1, Y15
	LANES(1, b0, b1, b2, b3, b4)
	VADDPS Y0, Y14, Y14
	VADDPS Y1, Y15, Y15
	LANES(2, c0, c1, c2, c3, c4)
	VMOVAPS Y0, Y12
	VMOVAPS Y1, Y13
	LANES(3, d0, d1, d2, d3, d4)
	VADDPS Y0, Y12, Y12
	VADDPS Y1, Y13, Y13
	VADDPS Y12, Y14, Y14
	VADDPS Y13, Y15, Y15
	VBROADCASTSS scale+40(FP), Y0
	VMULPS Y0, Y14, Y14
	VMULPS Y0, Y15, Y15
	VMOVUPS Y14, (BX)
	VMOVUPS Y15, 32(BX)
	VZEROUPPER
	RET

// func mix256x32(weightsA, weightsB, valuesA, valuesB, outA, outB unsafe.Pointer, stride, tokens int)
TEXT ·mix256x32(SB), NOSPLIT, $0-64
	MIXARGS
	VMOVUPS (R10), Y0
	VMOVUPS 32(R10), Y1
	VMOVUPS 64(R10), Y2
	VMOVUPS 96(R10), Y3
	VMOVUPS (R11), Y4
	VMOVUPS 32(R11), Y5
	VMOVUPS 64(R11), Y6
	VMOVUPS 96(R11), Y7
loop:
	VBROADCASTSS (SI), Y8
	VBROADCASTSS (DI), Y9
	VFMADD231PS (R8), Y8, Y0
	VFMADD231PS 32(R8), Y8, Y1
	VFMADD231PS 64(R8), Y8, Y2
	VFMADD231PS 96(R8), Y8, Y3
	VFMADD231PS (R9), Y9, Y4
	VFMADD231PS 32(R9), Y9, Y5
	VFMADD231PS 64(R9), Y9, Y6
	VFMADD231PS 96(R9), Y9, Y7
	NEXTTOKEN
	JNZ loop
	VMOVUPS Y0, (R10)
	VMOVUPS Y1, 32(R10)
	VMOVUPS Y2, 64(R10)
	VMOVUPS Y3, 96(R10)
	VMOVUPS Y4, (R11)
	VMOVUPS Y5, 32(R11)
	VMOVUPS Y6, 64(R11)
	VMOVUPS Y7, 96(R11)
	VZEROUPPER
	RET

// func mix256x16(weightsA, weightsB, valuesA, valuesB, outA, outB unsafe.Pointer, stride, tokens int)
TEXT ·mix256x16(SB), NOSPLIT, $0-64
	MIXARGS
	VMOVUPS (R10), Y0
	VMOVUPS 32(R10), Y1
	VMOVUPS (R11), Y4
	VMOVUPS 32(R11), Y5
loop:
	VBROADCASTSS (SI), Y8
	VBROADCASTSS (DI), Y9
	VFMADD231PS (R8), Y8, Y0
	VFMADD231PS 32(R8), Y8, Y1
	VFMADD231PS (R9), Y9, Y4
	VFMADD231PS 32(R9), Y9, Y5
	NEXTTOKEN
	JNZ loop
	VMOVUPS Y0, (R10)
	VMOVUPS Y1, 32(R10)
	VMOVUPS Y4, (R11)
	VMOVUPS Y5, 32(R11)
	VZEROUPPER
	RET
