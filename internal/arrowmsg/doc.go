// Package arrowmsg finds the parts of Arrow IPC messages that lie in memory: their
// metadata, their bodies, and the nodes and buffers of record batches. It neither
// trusts nor copies them. Every place that metadata names is checked against the
// bytes that are there, and what is returned are slices of the bytes that were given.
//
// It knows no types and no schema, so it cannot say which column a buffer belongs to
// or whether its values make sense; its callers do. It reads metadata of version V5,
// the one written since Arrow 1.0, and does not decompress.
//
// It writes what a file has besides the bytes of its columns: the messages of record
// batches, and the footer.
package arrowmsg
