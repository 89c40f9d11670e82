// Does nothing: its figures are those of the start of every program.
int main(void) {
    return 0;
}
