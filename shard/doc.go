// Package shard stores samples durably as a dataset directory and reads them back.
// It is the only place that knows column names, and the only one with Arrow. It does
// not know dumps or producers.
//
// A dataset is a directory:
//
//	manifest.json        the commit point, written last
//	shards/000000.arrow  Arrow IPC files, plain or compressed, never modified once the manifest lists them
//	inputs.jsonl         the inputs that were taken, one line each, append-only
//	rejected.jsonl       the inputs that were refused, one line each, append-only
//	lock                 held by the one writer
//
// Of the two .jsonl files the manifest says how many bytes belong to the dataset;
// what follows them was being written when a writer was killed, and the next writer
// cuts it off. So the order of a commit is: shard, then lines, then manifest.
package shard
