// A Java program on RocksDB with threads that run what an Ozone DataNode's threads run, as far as their names and fields
// go. It does what it is told on standard input, and answers each line with one.
//
// Argument 0: a directory for the database. Argument 1: how many scanners.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.Collectors;
import org.apache.hadoop.hdfs.util.DataTransferThrottler;
import org.apache.hadoop.ozone.container.ozoneimpl.BackgroundContainerDataScanner;
import org.rocksdb.Options;
import org.rocksdb.RocksDB;

public class ScannerHost {
    private static final long BYTES_PER_SECOND = 5 << 20;
    private static final Object release = new Object();

    public static void main(String[] arguments) throws Exception {
        RocksDB.loadLibrary();
        try (Options options = new Options().setCreateIfMissing(true);
             RocksDB database = RocksDB.open(options, arguments[0])) {
            List<DataTransferThrottler> throttlers = new ArrayList<>();
            for (int number = 0; number < Integer.parseInt(arguments[1]); number++) {
                DataTransferThrottler throttler = new DataTransferThrottler(BYTES_PER_SECOND);
                throttlers.add(throttler);
                String name = "ContainerDataScanner(/data/" + number + "/\u00e4\u20ac" + ")";
                Thread thread = new Thread(new BackgroundContainerDataScanner(throttler), name);
                thread.setDaemon(true);
                thread.start();
            }
            System.out.println("ready");
            BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
            for (String line = commands.readLine(); line != null; line = commands.readLine()) {
                run(line, throttlers);
            }
        }
    }

    private static void run(String command, List<DataTransferThrottler> throttlers) throws Exception {
        switch (command) {
            case "bandwidths":
                System.out.println(throttlers.stream()
                    .map(throttler -> String.valueOf(throttler.getBandwidth())).collect(Collectors.joining(" ")));
                return;
            case "differ":
                throttlers.get(0).setBandwidth(1 << 20);
                break;
            case "refuse":
            case "accept":
                throttlers.forEach(throttler -> throttler.refuse(command.equals("refuse")));
                break;
            case "hold":
                // The monitor is kept until it is told otherwise.
                Thread holder = new Thread(() -> {
                    synchronized (throttlers.get(0)) {
                        System.out.println("held");
                        synchronized (release) {
                            try {
                                release.wait();
                            } catch (InterruptedException e) {
                                // It ends.
                            }
                        }
                    }
                });
                holder.setDaemon(true);
                holder.start();
                return;
            case "release":
                synchronized (release) {
                    release.notifyAll();
                }
                break;
            default:
                break;
        }
        System.out.println("done");
    }
}
