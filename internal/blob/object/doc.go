// Package object implements blob.Store on anything that speaks S3: streaming and multipart
// puts, conditional writes, resumed reads, checksums, and the meaning of an answer that got
// lost. It sends no request: the drivers do, one for each client library, behind the small
// API interface. Checksums are CRC-64/NVME, which find damage but no intent; SHA-256 pins
// bytes against that.
//
// Invariant: every write carries a nonce, so that after any answer or none the store can be
// asked whether the bytes under a key are this writer's.
package object
