//go:build goexperiment.simd && amd64

#include "textflag.h"

#define ZERO(a, b) \
	VXORPS a, a, a \
	VXORPS b, b, b

// func scores8(q, keys, out unsafe.Pointer, groups, parts, chunks int, scale float32)
// computes the products of a query with 16 keys a group: keys [groups, E, 16], out [groups,
// 16], for E = parts * chunks * 8 dimensions. Lane j of the backend's vectors has the terms
// of dimensions j, j+8 and so on, those of each part first. The lanes are added as halves,
// then neighbors, then the rest.

#define TERM(d, a, b) \
	VBROADCASTSS (4*d)(R8), Y15 \
	VMULPS (64*d)(R9), Y15, Y14 \
	VADDPS Y14, a, a \
	VMULPS (64*d+32)(R9), Y15, Y13 \
	VADDPS Y13, b, b

// LANES computes the sum of lanes i and i+4 in Y4 and Y5.
#define LANES(i, part, chunk) \
	LEAQ (4*i)(SI), R8 \
	LEAQ (64*i)(DI), R9 \
	MOVQ R12, R11 \
	ZERO(Y4, Y5) \
	ZERO(Y6, Y7) \
part: \
	MOVQ R13, R10 \
	ZERO(Y8, Y9) \
	ZERO(Y10, Y11) \
chunk: \
	TERM(0, Y8, Y9) \
	TERM(4, Y10, Y11) \
	ADDQ $32, R8 \
	ADDQ $512, R9 \
	DECQ R10 \
	JNZ chunk \
	VADDPS Y8, Y4, Y4 \
	VADDPS Y9, Y5, Y5 \
	VADDPS Y10, Y6, Y6 \
	VADDPS Y11, Y7, Y7 \
	DECQ R11 \
	JNZ part \
	VADDPS Y6, Y4, Y4 \
	VADDPS Y7, Y5, Y5

TEXT ·scores8(SB), NOSPLIT, $0-52
	MOVQ q+0(FP), SI
	MOVQ keys+8(FP), DI
	MOVQ out+16(FP), BX
	MOVQ groups+24(FP), CX
	MOVQ parts+32(FP), R12
	MOVQ chunks+40(FP), R13
	VBROADCASTSS scale+48(FP), Y12
	MOVQ R12, DX
	IMULQ R13, DX
	SHLQ $9, DX
group:
	LANES(0, part0, chunk0)
	VMOVAPS Y4, Y0
	VMOVAPS Y5, Y1
	LANES(1, part1, chunk1)
	VADDPS Y4, Y0, Y0
	VADDPS Y5, Y1, Y1
	LANES(2, part2, chunk2)
	VMOVAPS Y4, Y2
	VMOVAPS Y5, Y3
	LANES(3, part3, chunk3)
	VADDPS Y4, Y2, Y2
	VADDPS Y5, Y3, Y3
	VADDPS Y2, Y0, Y0
	VADDPS Y3, Y1, Y1
	VMULPS Y12, Y0, Y0
	VMULPS Y12, Y1, Y1
	VMOVUPS Y0, (BX)
	VMOVUPS Y1, 32(BX)
	ADDQ DX, DI
	ADDQ $64, BX
	DECQ CX
	JNZ group
	VZEROUPPER
	RET
