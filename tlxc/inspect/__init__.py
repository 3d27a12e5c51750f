"""Reading what the compiler and the assembler made: machine code by loops, and two builds side by side."""
