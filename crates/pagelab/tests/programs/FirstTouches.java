/** Two methods allocate memory, which the virtual machine fills with zeros. */
public class FirstTouches {
    static Object[] kept = new Object[100];

    static byte[] bytes48M() {
        byte[] last = null;
        for (int at = 0; at < 12; at++) {
            last = new byte[4 << 20];
            kept[at] = last;
        }
        return last;
    }

    static long[] longs64M() {
        long[] last = null;
        for (int at = 0; at < 16; at++) {
            last = new long[(4 << 20) / 8];
            kept[20 + at] = last;
        }
        return last;
    }

    public static void main(String[] arguments) {
        System.out.println(bytes48M().length + longs64M().length);
    }
}
