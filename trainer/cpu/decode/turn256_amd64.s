//go:build goexperiment.simd && amd64

#include "textflag.h"

// Both functions turn 8 rows of a weight [out, in] into 8 columns: row i of the source,
// which begins i*srcStride bytes behind the first, becomes number i of each group of 8 in
// the result, which begin dstStride bytes behind one another. ahead is the distance of what
// is fetched meanwhile; see turn512_amd64.s.

// ADDRESS sets SI and R8 to rows 0 and 4, AX and R12 to what is ahead of them, DX to the
// stride and R11 to three.
#define ADDRESS \
	MOVQ dst+0(FP), DI \
	MOVQ src+8(FP), SI \
	MOVQ dstStride+16(FP), BX \
	MOVQ srcStride+24(FP), DX \
	MOVQ depth+32(FP), CX \
	MOVQ ahead+40(FP), AX \
	LEAQ (DX)(DX*2), R11 \
	LEAQ (SI)(DX*4), R8 \
	LEAQ (R8)(AX*1), R12 \
	LEAQ (SI)(AX*1), AX

#define FETCH(ahead) \
	PREFETCHT1 (ahead) \
	PREFETCHT1 (ahead)(DX*1) \
	PREFETCHT1 (ahead)(DX*2) \
	PREFETCHT1 (ahead)(R11*1)

#define LOAD \
	FETCH(AX) \
	FETCH(R12) \
	VMOVUPS (SI), Y0 \
	VMOVUPS (SI)(DX*1), Y1 \
	VMOVUPS (SI)(DX*2), Y2 \
	VMOVUPS (SI)(R11*1), Y3 \
	VMOVUPS (R8), Y4 \
	VMOVUPS (R8)(DX*1), Y5 \
	VMOVUPS (R8)(DX*2), Y6 \
	VMOVUPS (R8)(R11*1), Y7 \
	ADDQ $32, SI \
	ADDQ $32, R8 \
	ADDQ $32, AX \
	ADDQ $32, R12

// QUAD transposes the four numbers of each half of four rows.
#define QUAD(a, b, c, d, p, q, r, s) \
	VUNPCKLPS b, a, p \
	VUNPCKHPS b, a, q \
	VUNPCKLPS d, c, r \
	VUNPCKHPS d, c, s \
	VUNPCKLPD r, p, a \
	VUNPCKHPD r, p, b \
	VUNPCKLPD s, q, c \
	VUNPCKHPD s, q, d

// JOIN makes numbers i and i+4 of all rows from those of rows 0 to 3 and of rows 4 to 7.
#define JOIN(a, b, p) \
	VPERM2F128 $0x20, b, a, p \
	VPERM2F128 $0x31, b, a, b \
	VMOVAPS p, a

// TURN transposes 8 rows of 8 numbers of 32 bits, number i of all rows into register i.
#define TURN \
	QUAD(Y0, Y1, Y2, Y3, Y8, Y9, Y10, Y11) \
	QUAD(Y4, Y5, Y6, Y7, Y12, Y13, Y14, Y15) \
	JOIN(Y0, Y4, Y8) \
	JOIN(Y1, Y5, Y9) \
	JOIN(Y2, Y6, Y10) \
	JOIN(Y3, Y7, Y11)

#define PUT(x) \
	VMOVUPS x, (DI) \
	ADDQ BX, DI

// func turn8Float32(dst, src unsafe.Pointer, dstStride, srcStride, depth, ahead int)
TEXT ·turn8Float32(SB), NOSPLIT, $0-48
	ADDRESS
loop:
	LOAD
	TURN
	PUT(Y0)
	PUT(Y1)
	PUT(Y2)
	PUT(Y3)
	PUT(Y4)
	PUT(Y5)
	PUT(Y6)
	PUT(Y7)
	SUBQ $8, CX
	JNZ loop
	VZEROUPPER
	RET

// PAIR stores two numbers that are neighbors in the source: the low halves of 32 bits,
// then the high ones. Y15 selects those.
#define PAIR(x) \
	VPSLLD $16, x, Y8 \
	VMOVUPS Y8, (DI) \
	VPAND Y15, x, x \
	VMOVUPS x, (DI)(BX*1) \
	LEAQ (DI)(BX*2), DI

// func turn8BFloat16(dst, src unsafe.Pointer, dstStride, srcStride, depth, ahead int)
TEXT ·turn8BFloat16(SB), NOSPLIT, $0-48
	ADDRESS
loop:
	LOAD
	TURN
	VPCMPEQD Y15, Y15, Y15
	VPSLLD $16, Y15, Y15
	PAIR(Y0)
	PAIR(Y1)
	PAIR(Y2)
	PAIR(Y3)
	PAIR(Y4)
	PAIR(Y5)
	PAIR(Y6)
	PAIR(Y7)
	SUBQ $16, CX
	JNZ loop
	VZEROUPPER
	RET
