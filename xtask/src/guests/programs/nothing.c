// Does nothing: what it takes to get so far is the start of every program.
int main(void) {
    return 0;
}
