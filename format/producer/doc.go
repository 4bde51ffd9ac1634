// Package producer knows the dumps of each capture program: which names its
// tensors have, which shapes, whether the final state is taken before or after the
// final norm, and how it numbers layers. It recognises what a decoded container is
// and turns it into [format.Sample]s whose states alias the container's bytes.
//
// It opens no file and decodes no container: the codecs beside it do. It does not
// judge the data either. It refuses what cannot be read in one way only (ranks,
// row counts, widths, lists that contradict each other); whether the states are any
// good is for a validator to say.
//
// Recognition goes by the whole key set, by rank and by width, never by one name:
// hidden_states is the final state in one program, the concatenated aux states in
// another and all of them in a third. What a dump leaves open comes from [Facts];
// what nobody says stays unknown.
package producer
