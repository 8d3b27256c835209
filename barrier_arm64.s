#include "textflag.h"

// func storeBarrier()
TEXT ·storeBarrier(SB), NOSPLIT, $0-0
	DMB	$0xe
	RET

// func storeFence()
TEXT ·storeFence(SB), NOSPLIT, $0-0
	DSB	$0xe
	RET

// func storeLine(to *byte, from *uint64)
TEXT ·storeLine(SB), NOSPLIT, $0-16
	MOVD	to+0(FP), R0
	MOVD	from+8(FP), R1
	LDP	0(R1), (R2, R3)
	LDP	16(R1), (R4, R5)
	LDP	32(R1), (R6, R7)
	LDP	48(R1), (R8, R9)
	MOVD	R2, 0(R0)
	MOVD	R3, 8(R0)
	MOVD	R4, 16(R0)
	MOVD	R5, 24(R0)
	MOVD	R6, 32(R0)
	MOVD	R7, 40(R0)
	MOVD	R8, 48(R0)
	MOVD	R9, 56(R0)
	DSB	$0xe
	RET
