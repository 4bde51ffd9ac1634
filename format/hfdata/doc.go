// Package hfdata reads the token columns, input_ids and loss_mask, of a Hugging
// Face dataset as save_to_disk writes it: Arrow IPC stream files, and the state.json
// that lists them.
//
// It takes bytes, opens no files, writes nothing and looks at no other column. The
// token columns stay where they are: a [Stream] keeps slices of the bytes it was
// given, a few for each record batch. The bytes must stay unchanged, and mapped if
// they are mapped, while it is used.
//
// The metadata of a stream is read through package arrowmsg rather than the Arrow
// library, whose reader copies every buffer of every column and sizes its first
// allocation by a length that it has not checked; an allocation that is too large
// ends the process, and no recover can stop it.
package hfdata
