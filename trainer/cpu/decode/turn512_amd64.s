//go:build goexperiment.simd && amd64

#include "textflag.h"

// Both functions turn 16 rows of a weight [out, in] into 16 columns [in, 16]: row i of
// the source, which begins i*srcStride bytes behind the first, becomes number i of each
// group of 16 in the result, which begin dstStride bytes behind one another.

//
// ahead is the distance of what is fetched into the second-level cache meanwhile: the rows of
// the next tile. A processor does not foresee them, since each row is read for a short
// while only.

// ADDRESS sets SI, R8, R9, R10 to rows 0, 4, 8, 12, AX, R12, R13, R15 to what is ahead of
// them, DX to the stride and R11 to three.
#define ADDRESS \
	MOVQ dst+0(FP), DI \
	MOVQ src+8(FP), SI \
	MOVQ dstStride+16(FP), BX \
	MOVQ srcStride+24(FP), DX \
	MOVQ depth+32(FP), CX \
	LEAQ (DX)(DX*2), R11 \
	LEAQ (SI)(DX*4), R8 \
	LEAQ (R8)(DX*4), R9 \
	LEAQ (R9)(DX*4), R10 \
	MOVQ ahead+40(FP), AX \
	LEAQ (R8)(AX*1), R12 \
	LEAQ (R9)(AX*1), R13 \
	LEAQ (R10)(AX*1), R15 \
	LEAQ (SI)(AX*1), AX

// FOUR loads four rows from a row on, and fetches those ahead.
#define FOUR(at, ahead, a, b, c, d) \
	PREFETCHT1 (ahead) \
	PREFETCHT1 (ahead)(DX*1) \
	PREFETCHT1 (ahead)(DX*2) \
	PREFETCHT1 (ahead)(R11*1) \
	VMOVUPS (at), a \
	VMOVUPS (at)(DX*1), b \
	VMOVUPS (at)(DX*2), c \
	VMOVUPS (at)(R11*1), d

#define LOAD \
	FOUR(SI, AX, Z0, Z1, Z2, Z3) \
	FOUR(R8, R12, Z4, Z5, Z6, Z7) \
	FOUR(R9, R13, Z8, Z9, Z10, Z11) \
	FOUR(R10, R15, Z12, Z13, Z14, Z15) \
	ADDQ $64, SI \
	ADDQ $64, R8 \
	ADDQ $64, R9 \
	ADDQ $64, R10 \
	ADDQ $64, AX \
	ADDQ $64, R12 \
	ADDQ $64, R13 \
	ADDQ $64, R15

// QUAD transposes the four numbers of each quarter of four rows.
#define QUAD(a, b, c, d, p, q, r, s) \
	VUNPCKLPS b, a, p \
	VUNPCKHPS b, a, q \
	VUNPCKLPS d, c, r \
	VUNPCKHPS d, c, s \
	VUNPCKLPD r, p, a \
	VUNPCKHPD r, p, b \
	VUNPCKLPD s, q, c \
	VUNPCKHPD s, q, d

// SPREAD sorts the quarters of the numbers i of each quarter of all rows: they are in a,
// b, c, d for rows 0 to 3, 4 to 7 and so on, and become numbers i, i+4, i+8, i+12.
#define SPREAD(a, b, c, d, p, q, r, s) \
	VSHUFF32X4 $0x88, b, a, p \
	VSHUFF32X4 $0xdd, b, a, q \
	VSHUFF32X4 $0x88, d, c, r \
	VSHUFF32X4 $0xdd, d, c, s \
	VSHUFF32X4 $0x88, r, p, a \
	VSHUFF32X4 $0x88, s, q, b \
	VSHUFF32X4 $0xdd, r, p, c \
	VSHUFF32X4 $0xdd, s, q, d

// TURN transposes 16 rows of 16 numbers of 32 bits. Number 4j+i of all rows is then in
// register i+4j.
#define TURN \
	QUAD(Z0, Z1, Z2, Z3, Z16, Z17, Z18, Z19) \
	QUAD(Z4, Z5, Z6, Z7, Z20, Z21, Z22, Z23) \
	QUAD(Z8, Z9, Z10, Z11, Z24, Z25, Z26, Z27) \
	QUAD(Z12, Z13, Z14, Z15, Z16, Z17, Z18, Z19) \
	SPREAD(Z0, Z4, Z8, Z12, Z16, Z17, Z18, Z19) \
	SPREAD(Z1, Z5, Z9, Z13, Z20, Z21, Z22, Z23) \
	SPREAD(Z2, Z6, Z10, Z14, Z24, Z25, Z26, Z27) \
	SPREAD(Z3, Z7, Z11, Z15, Z16, Z17, Z18, Z19)

// func turnFloat32(dst, src unsafe.Pointer, dstStride, srcStride, depth, ahead int)
TEXT ·turnFloat32(SB), NOSPLIT, $0-48
	ADDRESS
loop:
	LOAD
	TURN
	VMOVUPS Z0, (DI)
	ADDQ BX, DI
	VMOVUPS Z1, (DI)
	ADDQ BX, DI
	VMOVUPS Z2, (DI)
	ADDQ BX, DI
	VMOVUPS Z3, (DI)
	ADDQ BX, DI
	VMOVUPS Z4, (DI)
	ADDQ BX, DI
	VMOVUPS Z5, (DI)
	ADDQ BX, DI
	VMOVUPS Z6, (DI)
	ADDQ BX, DI
	VMOVUPS Z7, (DI)
	ADDQ BX, DI
	VMOVUPS Z8, (DI)
	ADDQ BX, DI
	VMOVUPS Z9, (DI)
	ADDQ BX, DI
	VMOVUPS Z10, (DI)
	ADDQ BX, DI
	VMOVUPS Z11, (DI)
	ADDQ BX, DI
	VMOVUPS Z12, (DI)
	ADDQ BX, DI
	VMOVUPS Z13, (DI)
	ADDQ BX, DI
	VMOVUPS Z14, (DI)
	ADDQ BX, DI
	VMOVUPS Z15, (DI)
	ADDQ BX, DI
	SUBQ $16, CX
	JNZ loop
	VZEROUPPER
	RET

// PAIR stores two numbers that are neighbors in the source: the low halves of 32 bits,
// then the high ones.
#define PAIR(x) \
	VPSLLD $16, x, Z28 \
	VMOVUPS Z28, (DI) \
	VPANDD Z31, x, x \
	VMOVUPS x, (DI)(BX*1) \
	LEAQ (DI)(BX*2), DI

// func turnBFloat16(dst, src unsafe.Pointer, dstStride, srcStride, depth, ahead int)
TEXT ·turnBFloat16(SB), NOSPLIT, $0-48
	ADDRESS
	VPTERNLOGD $0xff, Z31, Z31, Z31
	VPSLLD $16, Z31, Z31
loop:
	LOAD
	TURN
	PAIR(Z0)
	PAIR(Z1)
	PAIR(Z2)
	PAIR(Z3)
	PAIR(Z4)
	PAIR(Z5)
	PAIR(Z6)
	PAIR(Z7)
	PAIR(Z8)
	PAIR(Z9)
	PAIR(Z10)
	PAIR(Z11)
	PAIR(Z12)
	PAIR(Z13)
	PAIR(Z14)
	PAIR(Z15)
	SUBQ $32, CX
	JNZ loop
	VZEROUPPER
	RET
